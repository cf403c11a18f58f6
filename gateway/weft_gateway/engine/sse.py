"""The engine's report taken out of a stream of server-sent events. Sans-I/O.

Everything passes as it came but for `: weft-report {json}` comments with their blank line. Where
the bytes were split across reads changes neither what passes in the end nor the report.

Frames (events, in the words of the HTML standard, section 9.2) pass whole: of one that has only
begun a client can make nothing, and one that breaks off would be taken together with the error
event that follows. The frame that ends the answer for the client (`data: [DONE]` and its kin) also
waits for the report or the end of the stream, so that a client's next call finds the process table
up to date.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

import orjson
from weft_engine.wire import REPORT_COMMENT, CallReport

from weft_gateway.engine.errors import ReplicaClosed, ReplicaGarbage, ReplicaWrongCall

# The ids that gateways give to calls.
CALL_ID: Final = re.compile(r"call-[0-9a-f]{12}-[0-9a-f]{1,16}")
MAX_REPORT_BYTES: Final = 16_384
# A frame can hold a whole answer (`response.completed`), or a picture in it.
MAX_FRAME_BYTES: Final = 33_554_432
_LARGE_FRAME_BYTES: Final = 65_536
# What may follow the frame that ends the answer: comments, and `data: [DONE]` after an event.
MAX_TAIL_BYTES: Final = 65_536

_LF, _CR, _COLON = b"\n\r:"
_END: Final = re.compile(rb"\n\r?\n")
_ENDS: Final = (b"\n\n", b"\n\r\n")


class _Endings(NamedTuple):
    """How the streams of an endpoint end. line: a line that ends the answer; None if none does.
    starts, markers: what a frame of one line begins with, and what any read contains, where a
    closer look is needed."""

    line: re.Pattern[bytes] | None
    starts: tuple[bytes, ...]
    markers: tuple[bytes, ...]


@lru_cache(maxsize=16)
def _endings(terminals: tuple[bytes, ...]) -> _Endings:
    lines: list[bytes] = []
    values = []
    for terminal in terminals:
        field, _, value = terminal.partition(b": ")
        values.append(value)
        lines += (terminal, field + b":" + value)
        if field == b"event":  # Servers that do not name their events tell the type first.
            lines += (b'data: {"type":"%b"' % value, b'data: {"type": "%b"' % value)
    pattern = b"^(?:" + b"|".join(map(re.escape, lines)) + b")"
    return _Endings(
        re.compile(pattern, re.MULTILINE) if lines else None,
        (REPORT_COMMENT, *lines),
        (REPORT_COMMENT, *values),
    )


class StreamFilter:
    """One stream's filter. report: the last one seen, or None. dropped: how many reports were
    malformed. ended: the terminal frame came."""

    __slots__ = (
        "_between",
        "_call",
        "_endings",
        "_held",
        "_held_bytes",
        "_tail",
        "_tail_bytes",
        "dropped",
        "ended",
        "report",
    )

    def __init__(self, terminals: tuple[bytes, ...], call: str = "") -> None:
        """`terminals`: how the line that ends the answer may begin; () if none is known. call: the
        id that reports must have; "": any."""
        self._call = call
        self.report: CallReport | None = None
        self.dropped = 0
        self.ended = False
        self._endings = _endings(terminals)
        self._between = True  # Nothing is held, and the answer has not ended.
        self._held: list[bytes] = []  # The frame that has begun.
        self._held_bytes = 0
        self._tail: list[bytes] = []  # From the terminal frame on, until the report is there.
        self._tail_bytes = 0  # Of what came after the terminal frame.

    def feed(self, data: bytes) -> bytes:
        """Take bytes; return those to forward now, possibly none. ReplicaGarbage for a frame that
        has no end; ReplicaWrongCall for the report of another call."""
        if self._between and data.endswith(_ENDS):
            _, starts, markers = self._endings
            if data.find(b"\n") == len(data) - 2:  # One line: nearly every read of a chat.
                return self._slow(data) if data.startswith(starts) else data
            for marker in markers:
                if marker in data:
                    break
            else:
                return data
        return self._slow(data)

    def finish(self) -> bytes:
        """The stream has ended by itself. Return the rest to forward. ReplicaClosed if it should
        have ended with a terminal frame and has not."""
        rest, line = b"".join(self._held), self._endings.line
        if line is not None and not self.ended:
            if not line.search(rest):
                raise ReplicaClosed("The replica ended its stream before the answer was complete.")
            self.ended = True
        return self.cut() + rest

    def cut(self) -> bytes:
        """The stream broke off. Return the rest to forward: whole frames only."""
        rest = b"".join(self._tail)
        self._tail, self._held = [], []
        return rest

    def _slow(self, data: bytes) -> bytes:
        if self._held:
            ends = self._may_end(data)
            self._held.append(data)
            self._held_bytes += len(data)
            if not ends:
                self._check_size()
                return b""
            data = b"".join(self._held)
            self._held = []
        passed: list[bytes] = []
        begin, size = 0, len(data)
        if not self.ended:
            begin = self._ordinary(data)
            passed.append(data[:begin])
        while begin < size:
            end = _frame_end(data, begin)
            if not end:
                self._held = [data[begin:]]
                self._held_bytes = size - begin
                self._check_size()
                break
            self._frame(data[begin:end], passed)
            begin = end
        self._between = not (self._held or self.ended)
        if self.report is not None and self._tail:
            passed += self._tail
            self._tail = []
        return b"".join(passed)

    def _ordinary(self, data: bytes) -> int:
        """Where the whole frames at the beginning of `data` end, if none of them is a report or the
        end of the answer; else 0. Much cheaper than a look at each frame."""
        for marker in self._endings.markers:
            if marker in data:
                return 0
        return max(data.rfind(end) + len(end) if end in data else 0 for end in _ENDS)

    def _may_end(self, data: bytes) -> bool:
        """Whether `data` may hold the end of the frame that has begun. Large frames are joined once
        only: to join them for each line would take quadratic time."""
        if self._held_bytes < _LARGE_FRAME_BYTES or self._held[0].startswith(b":"):
            return b"\n" in data
        before = self._held[-1][-2:]
        if len(before) < 2:
            before = self._held[-2][-1:] + before
        return _END.search(before + data) is not None

    def _check_size(self) -> None:
        if self._held_bytes > MAX_FRAME_BYTES:
            raise ReplicaGarbage("The replica's stream has an event without end.")

    def _frame(self, frame: bytes, passed: list[bytes]) -> None:
        if frame.startswith(REPORT_COMMENT) and len(frame) <= MAX_REPORT_BYTES:
            self._take(frame[len(REPORT_COMMENT) :])
            return
        if self.ended:
            self._tail_bytes += len(frame)
            if self._tail_bytes > MAX_TAIL_BYTES:
                raise ReplicaGarbage("The replica's stream goes on after its end.")
        else:
            line = self._endings.line
            self.ended = line is not None and line.search(frame) is not None
        (self._tail if self.ended else passed).append(frame)

    def _take(self, text: bytes) -> None:
        report = read_report(text, self._call)
        if report is None:
            self.dropped += 1  # Still a comment of ours, and of no use to the client.
        else:
            self.report = report


def read_report(text: bytes, call: str) -> CallReport | None:
    """The report of `call`; None where the text is malformed. ReplicaWrongCall where it is the
    report of another call."""
    try:
        report = CallReport.from_mapping(orjson.loads(text))
    except ValueError:
        return None
    if not call or report.call == call:
        return report
    if CALL_ID.fullmatch(report.call):
        raise ReplicaWrongCall("The replica's answer is the answer to another call.")
    return None


def _frame_end(data: bytes, begin: int) -> int:
    """Where the frame that starts at `begin` ends, 0 if that has not come. Blank lines and comments
    between frames are frames of their own: a comment keeps the client's connection alive."""
    first = data[begin]
    if first == _LF:
        return begin + 1
    if first == _CR and data.startswith(b"\r\n", begin):
        return begin + 2
    if first == _COLON and not data.startswith(REPORT_COMMENT, begin):
        return data.find(b"\n", begin) + 1
    end = _END.search(data, begin)
    return end.end() if end else 0
