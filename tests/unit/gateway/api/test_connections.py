"""Connection limits of one process."""

from __future__ import annotations

from typing import Any, cast

from weft_gateway.api.connections import Edge
from weft_gateway.config import Settings


def edge(**settings: Any) -> Edge:
    return Edge(Settings(**settings), cast(Any, None))


class Client:
    def __init__(self, among: dict[Any, None]) -> None:
        self._among = among
        self.dropped = ""
        among[self] = None

    def drop(self, code: str) -> None:
        self.dropped = code
        del self._among[self]


def test_connections_that_wait_for_their_client_are_evicted():
    counts = edge(max_connections=4)
    counts.open = 4
    order = [
        Client(among)
        for among in (counts.fresh, counts.idle, counts.sockets, counts.sockets, counts.receiving)
    ]
    for number in range(5):
        assert counts.make_room()
        assert [bool(client.dropped) for client in order] == [at <= number for at in range(5)]
    assert not counts.make_room()
    counts.open = 3
    assert counts.make_room()


def test_connections_of_a_key_are_limited():
    counts = edge(max_connections_per_key=2)
    assert [counts.enter(b"a") for _ in range(3)] == [True, True, False]
    assert counts.enter(b"b")
    counts.leave(b"a")
    assert counts.enter(b"a")
    for key in (b"a", b"a", b"b"):
        counts.leave(key)
    assert not counts.by_key
