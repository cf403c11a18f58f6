"""Splits bytes into server-sent events, for any chunking. Sans-I/O, linear, bounded."""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_EVENT_BYTES: Final = 1 << 22


class Event(NamedTuple):
    """One event. name: its `event:` field, or b"". data: its `data:` lines, joined by line feeds.
    end: the end of its blank line, as an offset into the bytes of the feed that completed it.
    """

    name: bytes
    data: bytes
    end: int


class EventReader:
    """Splits a stream into events. Lines end in LF or CRLF. Events without data are skipped. Events
    of more than MAX_EVENT_BYTES are skipped, too, and no more than that is kept of them.
    """

    __slots__ = ("_data", "_kept", "_line", "_name", "_too_long")

    def __init__(self) -> None:
        self._line: list[bytes] = []  # Pieces of an incomplete line.
        self._data: list[bytes] = []
        self._name = b""
        self._kept = 0  # Bytes in _line and _data.
        self._too_long = False

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes. Returns the events that they complete."""
        events: list[Event] = []
        position = 0
        while True:
            line_end = data.find(b"\n", position)
            if line_end < 0:
                if position < len(data):
                    self._keep(data[position:], self._line)
                return events
            line = data[position:line_end]
            position = line_end + 1
            if self._line:
                begun = b"".join(self._line)
                self._line = []
                self._kept -= len(begun)
                line = begun + line
            if line.endswith(b"\r"):
                line = line[:-1]
            if line:
                self._field(line)
            else:
                if self._data and not self._too_long:
                    events.append(Event(self._name, b"\n".join(self._data), position))
                self._data, self._name, self._kept, self._too_long = [], b"", 0, False

    def _field(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._keep(line[6:] if line[5:6] == b" " else line[5:], self._data)
        elif line.startswith(b"event:"):
            self._name = line[6:].strip()[:256]

    def _keep(self, piece: bytes, kept: list[bytes]) -> None:
        self._kept += len(piece)
        if self._kept > MAX_EVENT_BYTES:
            self._too_long = True
            self._data = []
        if self._too_long:
            # One byte stands for the dropped line, so that its end does not look like a blank line.
            self._line = [b":"] if kept is self._line else []
        else:
            kept.append(piece)
