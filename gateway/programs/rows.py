"""A program's row as Redis keeps it: one hash, a field for each active call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.model import Program, ProgramKey, Thread

_CALL: Final = b"t:"


def encode(text: str) -> bytes:
    """Any string, also one with lone surrogates out of a JSON escape, as bytes and back."""
    return text.encode("utf-8", "surrogatepass")


def decode(raw: bytes) -> str:
    """The reverse of `encode`."""
    return raw.decode("utf-8", "surrogatepass")


def number(value: float) -> str:
    """A float for Lua without loss: Redis cuts numbers, not strings."""
    return repr(float(value))


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """HGETALL as a script returns it."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def counts(flat: Sequence[bytes]) -> dict[str, int]:
    """The in-flight hash."""
    return {decode(name): int(value) for name, value in pairs(flat).items()}


def program(key: ProgramKey, row: Mapping[bytes, bytes]) -> Program:
    """The row as a snapshot."""

    def real(name: bytes) -> float:
        return float(row.get(name, 0.0))

    def whole(name: bytes) -> int:
        return int(row.get(name, 0))

    threads = []
    for name, packed in row.items():
        if name.startswith(_CALL):
            # Only the thread's id, which is last, may hold a newline.
            arrival, _, replica, thread = packed.split(b"\n", 3)
            threads.append(
                Thread(decode(name[2:]), decode(thread), decode(replica), float(arrival))
            )
    threads.sort(key=lambda t: (t.arrival_s, t.call))
    return Program(
        key=key,
        arrival_s=real(b"arrival"),
        service_s=real(b"service"),
        critical_path_s=real(b"critical_path"),
        waiting_s=real(b"waiting"),
        home=decode(row.get(b"home", b"")),
        threads=tuple(threads),
        last_arrival_s=real(b"last_arrival"),
        last_completion_s=real(b"last_completion"),
        calls=whole(b"calls"),
        calls_closed=whole(b"calls_closed"),
        errors=whole(b"errors"),
        prompt_tokens=whole(b"prompt"),
        cached_tokens=whole(b"cached"),
        output_tokens=whole(b"output"),
        preemptions=whole(b"preemptions"),
        ephemeral=row.get(b"ephemeral") == b"1",
        ended=b"ended" in row,
    )
