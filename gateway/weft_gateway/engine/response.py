"""Parses an HTTP/1.1 response without I/O: bytes in; status, headers and body parts out.

One machine serves one connection; `expect` prepares it for the next response. A body may be framed
by Content-Length, by chunks, or by the end of the connection.
"""

from __future__ import annotations

from typing import Final

import httptools

from weft_gateway.engine.errors import ReplicaClosed, ReplicaGarbage

MAX_HEAD_BYTES: Final = 65_536

Headers = list[tuple[bytes, bytes]]


class ResponseMachine:
    """The state of the expected response.

    status, headers (names in lower case) are valid once `head_complete`. `started`: a byte of the
    response has arrived. `complete`: all bytes have arrived. `keep_alive`: the connection can carry
    another request afterwards. `buffered`: size of the body parts not yet taken, in bytes.
    """

    __slots__ = (
        "_empty_bytes",
        "_framed",
        "_informational",
        "_parser",
        "_parts",
        "buffered",
        "complete",
        "head_complete",
        "headers",
        "keep_alive",
        "started",
        "status",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.expect()

    def expect(self) -> None:
        """Reset the state and expect the next response."""
        self.status = 0
        self.headers: Headers = []
        self.head_complete = False
        self.complete = False
        self.keep_alive = False
        self.started = False
        self.buffered = 0
        self._parts: list[bytes] = []
        self._framed = False
        self._informational = False
        # Bytes of the reads since the head began, the head ended, or content arrived.
        self._empty_bytes = 0

    def feed(self, data: bytes) -> None:
        """Process bytes from the connection. Raises ReplicaGarbage if they are not the expected
        response.
        """
        self.started = True
        self._empty_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            raise ReplicaGarbage("The replica's answer is not HTTP.") from None
        if self._empty_bytes > MAX_HEAD_BYTES and not self.complete:
            raise ReplicaGarbage("The headers or trailers of the replica's answer have no end.")

    def feed_eof(self) -> None:
        """Process the end of the connection. Raises ReplicaClosed if the response is incomplete."""
        if self.complete:
            return
        if not self.head_complete or self._framed:
            raise ReplicaClosed("The replica closed the connection before its answer was complete.")
        self.complete = True
        self.keep_alive = False

    def drop(self) -> None:
        """Drop the bytes that were not taken. No response can follow. The parser and this object
        refer to each other.
        """
        self._parts = []
        self.buffered = 0
        del self._parser

    def take(self, most: int = 0) -> bytes:
        """Return and remove the body bytes that have arrived, in one piece; b"" if none. most:
        maximum number of bytes; 0: no limit.
        """
        parts = self._parts
        if not parts:
            return b""
        if most and self.buffered > most:
            return self._take_some(most)
        self._parts = []
        self.buffered = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take_some(self, most: int) -> bytes:
        first = self._parts[0]
        if len(first) > most:
            # All slices are made at once, so each byte is copied once.
            self._parts[:1] = [first[at : at + most] for at in range(0, len(first), most)]
        count = size = 0
        for part in self._parts:
            if size + len(part) > most:
                break
            size += len(part)
            count += 1
        taken = b"".join(self._parts[:count])
        del self._parts[:count]
        self.buffered -= size
        return taken

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self.complete:  # Unrequested bytes after the answer.
            self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_complete:  # A trailer, or a surplus message.
            return
        name = name.lower()
        if name == b"content-length" or (
            name == b"transfer-encoding" and value.lower().endswith(b"chunked")
        ):
            self._framed = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.head_complete:
            return
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue, 103 Early Hints: the real head follows.
            self._informational = True
            self.headers = []
            self._framed = False
            return
        self.status = status
        self.keep_alive = self._parser.should_keep_alive()
        self.head_complete = True
        self._empty_bytes = 0

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._parts.append(body)
            self.buffered += len(body)
            self._empty_bytes = 0

    def on_message_complete(self) -> None:
        if self._informational:
            self._informational = False
            return
        self.complete = True
