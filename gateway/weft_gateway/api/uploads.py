"""Receives the file of a multipart form, piece by piece, and writes it to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.types import Receive

from weft_gateway import errors
from weft_gateway.calls.body_bytes import HeldBytes
from weft_gateway.engine.errors import ClientGone
from weft_gateway.errors import ApiError
from weft_gateway.runs.store import disk_error

# Bytes that are written at once, by another thread.
_WRITTEN: Final = 1 << 20
# Parts of the form, and bytes of a field and of a header. A header takes time that grows with the
# square of its length. The parser limits the number of headers.
_MOST_PARTS: Final = 16
_MOST_VALUE: Final = 1024
_MOST_HEADER: Final = 2048
MAX_NAME: Final = 255

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


class _Form:
    """The state of the parser: values of fields, and bytes of the file that are not written yet."""

    def __init__(self, most: int) -> None:
        self.values: dict[str, str] = {}
        self.name: str | None = None
        self.size = 0
        self.unwritten = bytearray()
        self.ended = False
        self._most = most
        self._parts = 0
        self._headers: dict[bytes, bytes] = {}
        self._header = b""
        self._text = b""
        self._field = ""
        self._in_file = False
        self._value = b""

    def callbacks(self) -> MultipartCallbacks:
        """Return the callbacks of the parser."""
        names = (
            "on_part_begin", "on_part_data", "on_part_end", "on_header_field", "on_header_value",
            "on_header_end", "on_headers_finished", "on_end",
        )  # fmt: skip
        found: Any = {name: getattr(self, f"_{name}") for name in names}
        return cast("MultipartCallbacks", found)

    def _on_part_begin(self) -> None:
        self._headers, self._value = {}, b""
        self._parts += 1
        self._check(self._parts <= _MOST_PARTS)

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._text += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._header.lower()] = self._text
        self._header = self._text = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._field = options.get(b"name", b"").decode("utf-8", "replace")
        self._in_file = self._field == "file"
        if self._in_file:
            if self.name is not None:
                raise errors.invalid_member(("file",), "must be sent once")
            name = options.get(b"filename", b"").decode("utf-8", "replace")
            # Only for display.
            self.name = "".join(c for c in name if c.isprintable())[:MAX_NAME] or "file"

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.size += end - start
            if self.size > self._most:
                text = f"The file has more than {self._most} bytes."
                raise ApiError(413, "file_too_large", text, param="file")
            self.unwritten += data[start:end]
        else:
            self._value += data[start:end]
            self._check(len(self._value) <= _MOST_VALUE)

    def _on_part_end(self) -> None:
        if not self._in_file:
            self.values[self._field] = self._value.decode("utf-8", "replace")

    def _on_end(self) -> None:
        self.ended = True

    @staticmethod
    def _check(small: bool) -> None:
        if not small:
            raise ApiError(400, "invalid_form", "The form has too many or too large fields.")


class Upload:
    """One upload to `path`. The context removes the file unless it was kept."""

    def __init__(self, path: Path, most: int, held: HeldBytes | None = None) -> None:
        """most: maximum size of the file, bytes. held: counts the bytes in memory. Raises ApiError
        if they do not fit.
        """
        if held is not None:
            held.take(_WRITTEN)
        self._held = held
        self.path = path
        self.values: Mapping[str, str] = {}
        self.name = ""
        self._most = most
        self._kept = False

    def keep(self) -> None:
        """Keep the file after the context."""
        self._kept = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._kept:
            self.path.unlink(missing_ok=True)

    async def form(self, content_type: bytes, receive: Receive) -> None:
        """Receive a form with a file in its field `file`. Raises ApiError and ClientGone."""
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not 0 < len(boundary) <= 256:
            what = "The content type must be multipart/form-data with a boundary."
            raise ApiError(415, "form_required", what)
        form = _Form(self._most)
        parser = MultipartParser(boundary, form.callbacks(), max_header_size=_MOST_HEADER)
        try:
            with self.path.open("wb") as file:
                async for data in _pieces(receive):
                    parser.write(data)
                    if len(form.unwritten) >= _WRITTEN:
                        unwritten, form.unwritten = form.unwritten, bytearray()
                        await asyncio.to_thread(file.write, unwritten)
                file.write(form.unwritten)
            parser.finalize()
        except FormParserError as error:
            raise ApiError(400, "invalid_form", f"The form is malformed: {error}"[:256]) from None
        except OSError as error:
            raise disk_error(error) from None
        if form.name is None or not form.ended:
            raise errors.invalid_member(("file",), "is missing, or the form is not complete")
        self.values, self.name = form.values, form.name

    async def body(self, receive: Receive) -> None:
        """Receive a body without a form. Raises ApiError and ClientGone."""
        size, unwritten = 0, bytearray()
        try:
            with self.path.open("wb") as file:
                async for data in _pieces(receive):
                    size += len(data)
                    if size > self._most:
                        raise errors.of("body_too_large", limit=self._most)
                    unwritten += data
                    if len(unwritten) >= _WRITTEN:
                        await asyncio.to_thread(file.write, bytes(unwritten))
                        unwritten.clear()
                file.write(unwritten)
        except OSError as error:
            raise disk_error(error) from None


async def _pieces(receive: Receive) -> Any:
    """Yield the pieces of a body. Raises ClientGone."""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        data = message.get("body", b"")
        if data:
            yield data
        if not message.get("more_body"):
            return
