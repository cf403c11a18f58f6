"""What OpenTelemetry gets of a call and of a program, without OpenTelemetry itself. Pure.

The ids of a program's span follow from its key, so that all gateways give its calls the same
parent.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from weft_gateway.model import ProgramKey

HEADER: Final = b"traceparent"
# vLLM has no name in the GenAI conventions.
PROVIDER: Final = "vllm"
# W3C Trace Context: version, trace, span, flags. Later versions may append fields.
_WRITTEN: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_SAMPLED: Final = 1


class Ids(NamedTuple):
    """A span in a trace. sampled: it is exported."""

    trace: int
    span: int
    sampled: bool


@dataclass(slots=True, eq=False)
class CallTrace:
    """The trace of a call in progress. call: the attempt that was opened last, "" if none.
    program: the call belongs to a program with a span. held_s, opened_s, ended_s: when the call
    could be held, when it was open, and when its client had been served, in seconds since it
    arrived; 0 before that.
    """

    ids: Ids | None = None
    parent: Ids | None = None
    links: tuple[Ids, ...] = ()
    agent: str = ""
    call: str = ""
    held_s: float = 0.0
    opened_s: float = 0.0
    ended_s: float = 0.0
    closed: bool = False


class Phase(NamedTuple):
    """A part of a call. begun_s, ended_s: seconds since the call arrived."""

    name: str
    begun_s: float
    ended_s: float


@dataclass(slots=True, eq=False)
class Ended:
    """A call or a program that has ended. begun_ns: Unix time. error: its type, "" for none. place:
    what metrics know it by; None: it counts in none. first_s: time to the first chunk of a stream,
    else 0.
    """

    name: str
    is_call: bool
    ids: Ids
    parent: Ids | None
    links: tuple[Ids, ...]
    begun_ns: int
    seconds: float
    attributes: Mapping[str, str | int | float | bool]
    error: str
    phases: tuple[Phase, ...] = ()
    place: tuple[str, str] | None = None
    first_s: float = 0.0
    tokens: tuple[int, int, int] | None = None


def read(headers: Iterable[tuple[bytes, bytes]]) -> Ids | None:
    """Return the client's span, None without one valid `traceparent`."""
    found = [value for name, value in headers if name == HEADER]
    match = _WRITTEN.fullmatch(found[0].strip()) if len(found) == 1 else None
    if match is None:
        return None
    trace, span = int(match[1], 16), int(match[2], 16)
    return Ids(trace, span, bool(int(match[3], 16) & _SAMPLED)) if trace and span else None


def written(ids: Ids) -> bytes:
    """Return a span as the value of `traceparent`."""
    return b"00-%032x-%016x-%02x" % ids


def of_program(key: ProgramKey) -> tuple[int, int]:
    """Return the ids of a program's trace and span."""
    digest = sha256("\0".join(key).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


def new_trace() -> int:
    """Return a random trace id."""
    return random.getrandbits(128) or 1


def new_span() -> int:
    """Return a random span id."""
    return random.getrandbits(64) or 1
