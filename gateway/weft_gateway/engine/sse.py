"""Extracts the engine's report from a stream of server-sent events. Without I/O.

Everything passes unchanged except `: weft-report {json}` comments with their blank line. The
positions at which reads split the bytes affect neither the output nor the report.

Frames (events in the HTML standard, section 9.2) pass whole: a client cannot use a partial frame,
and a frame that breaks off would merge with the error event after it. The frame that ends the
answer for the client (`data: [DONE]` and similar) also waits for the report or the end of the
stream, so that the client's next call finds an updated process table.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from weft_engine.wire import REPORT_COMMENT, CallReport

from weft_gateway.engine.errors import ReplicaClosed, ReplicaGarbage, ReplicaWrongCall

# Format of the call ids that gateways assign.
CALL_ID: Final = re.compile(r"call-[0-9a-f]{12}-[0-9a-f]{1,16}")
MAX_REPORT_BYTES: Final = 16_384
# A frame can hold a whole answer (`response.completed`) or an image.
MAX_FRAME_BYTES: Final = 33_554_432
_LARGE_FRAME_BYTES: Final = 65_536
# Limit on the data after the terminal frame: comments, and `data: [DONE]` after an event.
MAX_TAIL_BYTES: Final = 65_536

# An error ends the answer in all APIs. Its event needs no name, and the type comes first.
_ERROR: Final = re.compile(
    rb"^(?:event: ?(?:error|response\.failed)\r?$"
    rb'|data: ?\{\s*"(?:error"\s*:\s*["{]|type"\s*:\s*"(?:error|response\.failed)"))',
    re.MULTILINE,
)
_ERROR_STARTS: Final = (b'data: {"error', b'data:{"error', b'data: {"type":', b"event:")
_ERROR_MARKER: Final = b"error"

_LF, _CR, _COLON = b"\n\r:"
_END: Final = re.compile(rb"\n\r?\n")


class _Endings(NamedTuple):
    """The end of an endpoint's streams. line: pattern of a line that ends the answer; None if no
    such line exists. starts: prefixes of a one-line frame that needs inspection. markers: byte
    strings of a read that needs inspection.
    """

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
        if field == b"event":  # Servers that do not name their events put the type first.
            lines += (b'data: {"type":"%b"' % value, b'data: {"type": "%b"' % value)
    pattern = b"^(?:" + b"|".join(map(re.escape, lines)) + b")"
    return _Endings(
        re.compile(pattern, re.MULTILINE) if lines else None,
        (REPORT_COMMENT, *_ERROR_STARTS, *lines),
        (REPORT_COMMENT, _ERROR_MARKER, *values),
    )


class StreamFilter:
    """The filter of one stream. report: the last report, or None. dropped: number of malformed
    reports. ended: the terminal frame has arrived. error: the frame with which the engine ended the
    answer as failed, b"" without one. This frame and later ones are not passed on.
    """

    __slots__ = (
        "_call",
        "_endings",
        "_held",
        "_held_bytes",
        "_tail",
        "_tail_bytes",
        "dropped",
        "ended",
        "error",
        "report",
    )

    def __init__(self, terminals: tuple[bytes, ...], call: str = "") -> None:
        """`terminals`: prefixes of the line that ends the answer; () if unknown. call: the id that
        reports must have; "": any.
        """
        self._call = call
        self.report: CallReport | None = None
        self.dropped = 0
        self.ended = False
        self.error = b""
        self._endings = _endings(terminals)
        self._held: list[bytes] = []  # The incomplete frame.
        self._held_bytes = 0
        self._tail: list[bytes] = []  # The terminal frame and later ones, until the report arrives.
        self._tail_bytes = 0  # Bytes after the terminal frame.

    def feed(self, data: bytes) -> bytes:
        """Process bytes; return those to forward now, possibly none. Raises ReplicaGarbage for a
        frame without end, and ReplicaWrongCall for the report of another call.
        """
        if self._held:
            ends = self._may_end(data)
            self._held.append(data)
            self._held_bytes += len(data)
            if not ends:
                self._check_size()
                return b""
            data = b"".join(self._held)
            self._held = []
        elif (  # A read with one line: nearly every one of a slow chat.
            not self.ended
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and not data.startswith(self._endings.starts)
        ):
            return data
        passed: list[bytes] = []
        begin, size = 0, len(data)
        if not self.ended:
            begin = self._ordinary(data)
            if begin == size:
                return data
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
        if self.report is not None and self._tail:
            passed += self._tail
            self._tail = []
        return b"".join(passed)

    def finish(self) -> bytes:
        """Process the regular end of the stream. Return the remaining bytes to forward. Raises
        ReplicaClosed if a terminal frame is required and has not arrived.
        """
        rest, line = b"".join(self._held), self._endings.line
        if not self.ended and _ERROR.search(rest):
            self.error, self.ended = rest, True
        if self.error:
            return b""
        if line is not None and not self.ended:
            if not line.search(rest):
                raise ReplicaClosed("The replica ended its stream before the answer was complete.")
            self.ended = True
        return self.cut() + rest

    def cut(self) -> bytes:
        """Process the premature end of the stream. Return the remaining whole frames."""
        rest = b"".join(self._tail)
        self._tail, self._held = [], []
        return rest

    def _ordinary(self, data: bytes) -> int:
        """Return the end of the whole frames at the beginning of `data` of which none is a report,
        an error or the terminal frame. Much cheaper than inspecting each frame.
        """
        first = len(data)
        for marker in self._endings.markers:
            at = data.find(marker)
            if 0 <= at < first:
                first = at
        end = data.rfind(b"\n\n", 0, first)
        later = data.rfind(b"\n\r\n", max(end, 0), first)
        if later >= 0:
            return later + 3
        return end + 2 if end >= 0 else 0

    def _may_end(self, data: bytes) -> bool:
        """Whether `data` may contain the end of the incomplete frame. Large frames are joined only
        once: joining per line would take quadratic time.
        """
        first = self._held[0]
        is_comment = first.startswith(b":") and not first.startswith(REPORT_COMMENT)
        if self._held_bytes < _LARGE_FRAME_BYTES or is_comment:
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
                raise ReplicaGarbage("The replica's stream continues after its end.")
        elif _ERROR_MARKER in frame and _ERROR.search(frame):
            self.error, self.ended = frame, True
        else:
            line = self._endings.line
            self.ended = line is not None and line.search(frame) is not None
        if not self.error:
            (self._tail if self.ended else passed).append(frame)

    def _take(self, text: bytes) -> None:
        report = read_report(text, self._call)
        if report is None:
            self.dropped += 1  # The comment is Weft's and of no use to the client.
        else:
            self.report = report


def read_report(text: bytes, call: str) -> CallReport | None:
    """Return the report of `call`, or None if the text is malformed. Raises ReplicaWrongCall if it
    is the report of another call.
    """
    try:
        report = CallReport.from_json(text)
    except ValueError:
        return None
    if not call or report.call == call:
        return report
    if CALL_ID.fullmatch(report.call):
        raise ReplicaWrongCall("The replica's answer is the answer to another call.")
    return None


def _frame_end(data: bytes, begin: int) -> int:
    """Return the end of the frame that starts at `begin`, 0 if it has not arrived. Blank lines and
    comments between frames are separate frames: a comment keeps the client's connection alive.
    """
    first = data[begin]
    if first == _LF:
        return begin + 1
    if first == _CR and data.startswith(b"\r\n", begin):
        return begin + 2
    if first == _COLON and not data.startswith(REPORT_COMMENT, begin):
        return data.find(b"\n", begin) + 1
    end = _END.search(data, begin)
    return end.end() if end else 0
