"""`/v1/batches` in OpenAI's format, and `/v1/messages/batches` in Anthropic's."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import AfterValidator, BaseModel, Field

from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import described, read_model
from weft_gateway.api.files import StoredContent, declared_size
from weft_gateway.api.lists import page
from weft_gateway.api.uploads import Upload
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.runs.batch_input import MAX_LINES, InputReader
from weft_gateway.runs.batch_requests import CUSTOM_ID, write_lines
from weft_gateway.runs.batch_results import anthropic_batch, openai_batch
from weft_gateway.runs.batches import Batches
from weft_gateway.runs.records import Api

_MESSAGES: Final = "/v1/messages"
_URL: Final = re.compile(r"https?://([\w.:\[\]-]{1,255})(?:/[\w./~-]*)?", re.ASCII)
_DAY: Final = ("24h", 86_400)
_MAX_WINDOW_S: Final = 7 * 86_400
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _window_s(text: str) -> int:
    """Return the seconds of a completion window such as `24h`. Raises ValueError."""
    found = _WINDOW.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _MAX_WINDOW_S:
        raise ValueError(
            "must be a number with the unit s, m, h or d, at most 7 days, for example 24h"
        )
    return seconds


def _is_window(text: str) -> str:
    _window_s(text)
    return text


_Limit = Annotated[int, Query(ge=1, le=1000, description="batches per page")]
_Key = Annotated[str, Field(max_length=64)]
_Value = Annotated[str, Field(max_length=512)]


class ExpiresAfter(BaseModel):
    """When a file is deleted."""

    anchor: Literal["created_at"] = Field(description="the creation of the file")
    seconds: int = Field(ge=3600, le=2_592_000)


class NewBatch(BaseModel):
    """A batch to create."""

    input_file_id: str = Field(description="id of a file with the purpose `batch`")
    endpoint: Literal[
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"
    ] = Field(description="the endpoint of all requests")
    completion_window: Annotated[str, AfterValidator(_is_window)] = Field(
        description="after this time, requests that were not executed expire: a number with the "
        "unit s, m, h or d, at most 7 days; OpenAI knows only 24h"
    )
    metadata: Annotated[dict[_Key, _Value], Field(max_length=16)] | None = Field(
        None, description="at most 16 pairs, shown with the batch"
    )
    output_expires_after: ExpiresAfter | None = Field(
        None, description="when the files with results are deleted, if sooner than other files"
    )


class NewMessageRequest(BaseModel):
    """A request of a batch of messages."""

    custom_id: str = Field(pattern=f"^{CUSTOM_ID.pattern}$")
    params: dict[str, Any]


class NewMessageBatch(BaseModel):
    """A batch of messages to create."""

    requests: list[NewMessageRequest] = Field(min_length=1, max_length=MAX_LINES)


def router(
    auth: Authenticator,
    batches: Batches,
    turns: Turns,
    bodies: BodyBytes,
    reader: InputReader,
    settings: Settings,
) -> APIRouter:
    """Create the routes of OpenAI's batches and of Anthropic's. reader: of requests."""
    api = APIRouter(tags=["batches"])

    @api.post(
        "/v1/batches",
        summary="Create a batch",
        openapi_extra=described(NewBatch, required=True),
    )
    async def create_batch(request: Request, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Run the requests of a file in the background. The file is checked first: while the
        status is `validating`, the number of requests is not known."""
        new = await read_model(request, NewBatch, settings.max_body_bytes)
        window = (new.completion_window, _window_s(new.completion_window))
        kept = new.output_expires_after
        batch = batches.create(
            tenant,
            Api.OPENAI,
            new.endpoint,
            new.input_file_id,
            window,
            new.metadata,
            keep_s=kept.seconds if kept else 0,
        )
        return openai_batch(batch)

    @api.get("/v1/batches", summary="List batches")
    async def list_batches(
        tenant: str = Depends(auth.tenant),
        limit: Annotated[int, Query(ge=1, le=100, description="batches per page")] = 20,
        after: Annotated[str, Query(description="`last_id` of the previous page")] = "",
    ) -> Response:
        """The tenant's batches on this gateway, the newest first."""
        found = batches.batches(tenant, Api.OPENAI, after=after)
        return await page(turns, tenant, found, limit, openai_batch)

    @api.get("/v1/batches/{batch_id}", summary="Get a batch")
    async def get_batch(batch_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """The state of a batch, its counts, and the ids of its results after its end."""
        return openai_batch(batches.batch(tenant, Api.OPENAI, batch_id))

    @api.post("/v1/batches/{batch_id}/cancel", summary="Cancel a batch")
    async def cancel_batch(batch_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Stop sending requests. Calls in flight finish. The results so far are available when the
        status is `cancelled`."""
        return openai_batch(batches.cancel(tenant, Api.OPENAI, batch_id))

    @api.post(
        "/v1/messages/batches",
        summary="Create a batch of messages (Anthropic)",
        openapi_extra=described(NewMessageBatch, required=True),
    )
    async def create_message_batch(
        request: Request, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Run requests in the background. The body is written to the disk while it arrives."""
        batches.check_open(tenant)
        size = declared_size(dict(request.headers.raw))
        store = batches.store
        with batches.uploading(tenant, size) as (file_id, most):
            source = store.path(file_id).with_suffix(".json")
            body = Upload(source, most, bodies.hold(tenant))
            async with body, Upload(store.path(file_id), most) as lines:
                await body.body(request.receive)
                count = await write_lines(source, lines.path, reader, tenant)
                batches.add_file(tenant, file_id, "requests.jsonl", "batch_input", hidden=True)
                lines.keep()
        try:
            batch = batches.create(tenant, Api.ANTHROPIC, _MESSAGES, file_id, _DAY, total=count)
        except Exception:
            # No route shows or deletes this file.
            store.delete_file(file_id)
            raise
        return anthropic_batch(batch, base_url(request))

    @api.get(
        "/v1/messages/batches",
        summary="List batches of messages (Anthropic)",
    )
    async def list_message_batches(
        request: Request,
        tenant: str = Depends(auth.tenant),
        limit: _Limit = 20,
        after_id: Annotated[str, Query(description="`last_id` of the previous page")] = "",
        before_id: Annotated[str, Query(description="`first_id` of the next page")] = "",
    ) -> Response:
        """The tenant's batches on this gateway, the newest first."""
        before = "" if after_id else before_id
        found = batches.batches(tenant, Api.ANTHROPIC, after=after_id, before=before)
        shown = partial(anthropic_batch, base=base_url(request))
        return await page(
            turns, tenant, found, limit, shown, api=Api.ANTHROPIC, backwards=bool(before)
        )

    @api.get(
        "/v1/messages/batches/{batch_id}",
        summary="Get a batch of messages (Anthropic)",
    )
    async def get_message_batch(
        request: Request, batch_id: str, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """The state of a batch, and after its end its counts and the URL of its results."""
        return anthropic_batch(batches.batch(tenant, Api.ANTHROPIC, batch_id), base_url(request))

    @api.get(
        "/v1/messages/batches/{batch_id}/results",
        summary="Get the results of a batch of messages (Anthropic)",
        response_class=FileResponse,
        responses={200: {"content": {"application/x-jsonl": {}}}},
    )
    async def get_message_batch_results(
        batch_id: str, tenant: str = Depends(auth.tenant)
    ) -> FileResponse:
        """The results as JSON lines, in the order of their ends."""
        path = batches.results(tenant, Api.ANTHROPIC, batch_id)
        return StoredContent(path, media_type="application/x-jsonl")

    @api.post(
        "/v1/messages/batches/{batch_id}/cancel",
        summary="Cancel a batch of messages (Anthropic)",
    )
    async def cancel_message_batch(
        request: Request, batch_id: str, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Stop sending requests. Calls in flight finish."""
        return anthropic_batch(batches.cancel(tenant, Api.ANTHROPIC, batch_id), base_url(request))

    @api.delete(
        "/v1/messages/batches/{batch_id}",
        summary="Delete a batch of messages (Anthropic)",
    )
    async def delete_message_batch(
        batch_id: str, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Delete a batch that has ended, with its results."""
        batches.delete(tenant, Api.ANTHROPIC, batch_id)
        return {"id": batch_id, "type": "message_batch_deleted"}

    return api


def base_url(request: Request) -> str:
    """Return the gateway's URL as the client of a request sees it, without a slash at its end: of
    the `Host` header, or as the first proxy says. "" for an invalid host.
    """
    given = request.headers.get
    host, scheme, prefix = [
        given(f"x-forwarded-{name}", "").partition(",")[0].strip()
        for name in ("host", "proto", "prefix")
    ]
    host = host or given("host", "")
    found = f"{scheme or request.scope['scheme']}://{host}/{prefix.strip('/')}".rstrip("/")
    match = _URL.fullmatch(found)
    return found if match and match[1] == host else ""
