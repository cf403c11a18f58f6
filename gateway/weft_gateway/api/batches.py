"""`/v1/batches` in OpenAI's format, and `/v1/messages/batches` in Anthropic's."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse

from weft_gateway.api import schemas_batches as schemas
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import described, read_model
from weft_gateway.api.files import StoredContent, declared_size
from weft_gateway.api.lists import page
from weft_gateway.api.uploads import Upload
from weft_gateway.calls.body_bytes import BodyBytes
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.constants import Constants
from weft_gateway.runs.batch_input import MAX_LINES
from weft_gateway.runs.batch_requests import CUSTOM_ID, write_lines
from weft_gateway.runs.batch_results import anthropic_batch, openai_batch
from weft_gateway.runs.batch_store import Api
from weft_gateway.runs.batches import Batches

_MESSAGES: Final = "/v1/messages"
_URL: Final = re.compile(r"https?://([\w.:\[\]-]{1,255})(?:/[\w./~-]*)?", re.ASCII)
_DAY: Final = ("24h", 86_400)
_REQUESTS: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["requests"],
                    "properties": {
                        "requests": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": MAX_LINES,
                            "items": {
                                "type": "object",
                                "required": ["custom_id", "params"],
                                "properties": {
                                    "custom_id": {
                                        "type": "string",
                                        "pattern": f"^{CUSTOM_ID.pattern}$",
                                    },
                                    "params": {"type": "object"},
                                },
                            },
                        }
                    },
                }
            }
        },
    }
}
_Limit = Annotated[int, Query(ge=1, le=1000, description="batches per page")]


def router(auth: Authenticator, batches: Batches, turns: Turns, settings: Settings) -> APIRouter:
    """Create the routes of OpenAI's batches."""
    api = APIRouter(tags=["batches"])

    @api.post(
        "/v1/batches",
        summary="Create a batch",
        openapi_extra=described(schemas.NewBatch, required=True),
    )
    async def create_batch(request: Request, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Run the requests of a file in the background. The file is checked first: while the
        status is `validating`, the number of requests is not known."""
        new = await read_model(request, schemas.NewBatch, settings.max_body_bytes)
        window = (new.completion_window, schemas.window_s(new.completion_window))
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

    return api


def messages_router(
    auth: Authenticator,
    batches: Batches,
    turns: Turns,
    bodies: BodyBytes,
    unknown: Callable[[str], str],
    constants: Constants,
) -> APIRouter:
    """Create the routes of Anthropic's batches. unknown: see `write_lines`."""
    api = APIRouter(tags=["batches"])

    @api.post(
        "/v1/messages/batches",
        summary="Create a batch of messages (Anthropic)",
        openapi_extra=_REQUESTS,
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
                longest = constants.read_body_bytes
                count = await write_lines(source, lines.path, longest, turns, tenant, unknown)
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
