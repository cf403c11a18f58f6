"""Coalesced writes."""

from collections.abc import Callable
from typing import Any

from weft_gateway.api.coalescing import CoalescingTransport


class Loop:
    """Collects scheduled callbacks and runs them on request."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


class Transport:
    """Records what reaches the socket."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


def coalescing() -> tuple[Any, Transport, Loop]:
    transport, loop = Transport(), Loop()
    return CoalescingTransport(transport, loop), transport, loop  # type: ignore[arg-type]


def test_writes_of_one_loop_iteration_are_coalesced() -> None:
    coalesced, transport, loop = coalescing()
    coalesced.write(b"head")
    coalesced.write(b"body")
    assert transport.writes == []
    loop.turn()
    assert transport.writes == [b"headbody"]


def test_close_flushes_first() -> None:
    coalesced, transport, loop = coalescing()
    coalesced.write(b"last words")
    coalesced.close()
    assert transport.writes == [b"last words"]
    assert transport.closed
    loop.turn()
    assert transport.writes == [b"last words"]
