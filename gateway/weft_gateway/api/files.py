"""`/v1/files`: the inputs and results of batches, in OpenAI's format."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.responses import MalformedRangeHeader, RangeNotSatisfiable

from weft_gateway import errors
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.lists import page
from weft_gateway.api.uploads import Upload
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.turns import Turns
from weft_gateway.errors import ApiError
from weft_gateway.runs.batches import FILE_PURPOSES, Batches
from weft_gateway.runs.records import StoredFile

_MIN_EXPIRY_S: Final = 3600
_UPLOAD: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string", "enum": list(FILE_PURPOSES)},
                        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                        "expires_after[seconds]": {"type": "integer", "minimum": _MIN_EXPIRY_S},
                    },
                }
            }
        },
    }
}


def file_json(file: StoredFile) -> dict[str, Any]:
    """Return a file in OpenAI's format."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_s,
        "expires_at": file.expires_s,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


class StoredContent(FileResponse):
    """The bytes of a file, or the ranges that the client wants (RFC 9110, 14)."""

    @classmethod
    def _parse_range_header(cls, http_range: str, file_size: int) -> list[tuple[int, int]]:
        try:
            return super()._parse_range_header(http_range, file_size)
        except MalformedRangeHeader:
            return []  # Ignored: the whole file.
        except RangeNotSatisfiable as error:
            ranges = ((b"content-range", b"bytes */%d" % error.max_size),)
            what = f"The file has {error.max_size} bytes, and the range is beyond them."
            raise ApiError(416, "range_not_satisfiable", what, headers=ranges) from None


def router(auth: Authenticator, batches: Batches, turns: Turns, bodies: BodyBytes) -> APIRouter:
    """Create the routes."""
    api = APIRouter(tags=["batches"])

    @api.post(
        "/v1/files",
        summary="Upload a file",
        openapi_extra=_UPLOAD,
    )
    async def create_file(request: Request, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Store a file, for example the input of a batch: JSON lines, with one request each. The
        file is written to the disk while it arrives."""
        headers = dict(request.headers.raw)
        with batches.uploading(tenant, declared_size(headers)) as (file_id, most):
            path, held = batches.store.path(file_id), bodies.hold(tenant)
            async with Upload(path, most, held) as upload:
                await upload.form(headers.get(b"content-type", b""), request.receive)
                purpose = upload.values.get("purpose", "")
                if purpose not in FILE_PURPOSES:
                    what = f"must be one of {', '.join(FILE_PURPOSES)}"
                    raise errors.invalid_member(("purpose",), what)
                expires_s = _expiry(upload.values.get("expires_after[seconds]"))
                file = batches.add_file(tenant, file_id, upload.name, purpose, expires_s)
                upload.keep()
        return file_json(file)

    @api.get("/v1/files", summary="List files")
    async def list_files(
        tenant: str = Depends(auth.tenant),
        purpose: Annotated[str, Query(description="only files with this purpose")] = "",
        limit: Annotated[int, Query(ge=1, le=10_000, description="files per page")] = 10_000,
        after: Annotated[str, Query(description="`last_id` of the previous page")] = "",
        order: Annotated[Literal["asc", "desc"], Query(description="by creation")] = "desc",
    ) -> Response:
        """The tenant's files on this gateway."""
        if after:
            batches.file(tenant, after)
        found = batches.store.files(tenant, purpose, after, oldest_first=order == "asc")
        return await page(turns, tenant, found, limit, file_json)

    @api.get("/v1/files/{file_id}", summary="Get a file")
    async def get_file(file_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """The size, name and purpose of a file."""
        return file_json(batches.file(tenant, file_id))

    @api.get(
        "/v1/files/{file_id}/content",
        summary="Get the content of a file",
        response_class=StoredContent,
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    async def get_file_content(file_id: str, tenant: str = Depends(auth.tenant)) -> FileResponse:
        """The bytes of a file."""
        path = batches.content(tenant, file_id)
        return StoredContent(path, media_type="application/octet-stream")

    @api.delete("/v1/files/{file_id}", summary="Delete a file")
    async def delete_file(file_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Delete a file. 409 while a batch reads it."""
        batches.delete_file(tenant, file_id)
        return {"id": file_id, "object": "file", "deleted": True}

    return api


def declared_size(headers: dict[bytes, bytes]) -> int | None:
    """Return the declared size of a body, None without one."""
    text = headers.get(b"content-length", b"")
    return int(text) if text.isdigit() and len(text) < 20 else None


def _expiry(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not _MIN_EXPIRY_S <= int(text[:12]) < 10**10:
        what = f"must be at least {_MIN_EXPIRY_S}"
        raise errors.invalid_member(("expires_after", "seconds"), what)
    return int(text)
