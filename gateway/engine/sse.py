"""The engine's report taken out of a stream of server-sent events. Sans-I/O.

Everything passes as it came but for `: weft-report {json}` comments with their blank line. Where
the bytes were split across reads changes neither what passes nor the report. A frame that ends the
answer for the client (`data: [DONE]` and its kin) waits for the report or the end of the stream, so
that a client's next call finds the process table up to date; nothing else is ever held longer than
it takes to tell a line that has just begun from one of those.
"""

from __future__ import annotations

from typing import Final

import orjson

from engine_patches.wire import REPORT_COMMENT, CallReport

MAX_REPORT_BYTES: Final = 16_384


class StreamFilter:
    """One stream's filter. report: the last one seen, or None. ended: the terminal frame came."""

    __slots__ = ("_held", "_markers", "_mid_line", "_tail", "_terminals", "ended", "report")

    def __init__(self, terminals: tuple[bytes, ...]) -> None:
        """`terminals`: how the line that ends the answer may begin."""
        self.report: CallReport | None = None
        self.ended = False
        self._terminals = terminals
        self._markers = (REPORT_COMMENT, *terminals)
        self._mid_line = False  # What passed last did not end in a line feed.
        self._held = b""  # The start of a line that may become a marker.
        self._tail: list[bytes] = []  # From the terminal frame on, until the report is there.

    def feed(self, data: bytes) -> bytes:
        """Take bytes; return those to forward now, possibly none."""
        if not (self._held or self.ended or self._mid_line) and data.endswith(b"\n"):
            for marker in self._markers:
                if marker in data:
                    break
            else:
                return data
        return self._slow(self._held + data)

    def finish(self) -> bytes:
        """The stream has ended. Return the rest to forward."""
        rest = b"".join((*self._tail, self._held))
        self._tail, self._held = [], b""
        return rest

    def _slow(self, buffer: bytes) -> bytes:
        self._held = b""
        passed: list[bytes] = []
        position, size = 0, len(buffer)
        while position < size:
            if not self._mid_line:
                marker = self._marker_at(buffer, position)
                if marker is None:  # Too short to tell.
                    self._held = buffer[position:]
                    break
                if marker == REPORT_COMMENT:
                    end = buffer.find(b"\n\n", position, position + MAX_REPORT_BYTES)
                    if end >= 0:
                        self._take(buffer[position + len(marker) : end])
                        position = end + 2
                        continue
                    if size - position < MAX_REPORT_BYTES:
                        self._held = buffer[position:]
                        break
                elif marker:
                    self.ended = True
            line_end = buffer.find(b"\n", position) + 1
            self._mid_line = not line_end
            line_end = line_end or size
            sink = self._tail if self.ended else passed
            sink.append(buffer[position:line_end])
            position = line_end
        if self.report is not None and self._tail:
            passed += self._tail
            self._tail = []
        return b"".join(passed)

    def _marker_at(self, buffer: bytes, position: int) -> bytes | None:
        """The marker that the line at `position` begins with, b"" if none, None if undecided."""
        undecided = False
        for marker in self._markers:
            start = buffer[position : position + len(marker)]
            if start == marker:
                return marker
            undecided = undecided or (len(start) < len(marker) and marker.startswith(start))
        return None if undecided else b""

    def _take(self, text: bytes) -> None:
        try:
            self.report = CallReport.from_mapping(orjson.loads(text))
        except (ValueError, TypeError):
            return  # Still a comment of ours, and of no use to the client.
