"""`/v1/runs`: batch workflows that the gateway runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field, ValidationError, model_validator

from weft_gateway import errors
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import described, light_body
from weft_gateway.api.files import StoredContent
from weft_gateway.api.http import read_body
from weft_gateway.api.lists import page
from weft_gateway.api.stories import EventStream
from weft_gateway.calls.turns import Turns
from weft_gateway.errors import ApiError
from weft_gateway.model import ProgramKey
from weft_gateway.runs.records import Run, Status
from weft_gateway.runs.runs import Runs, listener_key

# Of a request, of its workflow, bytes, and of its rows. Files may be larger.
MAX_BODY_BYTES: Final = 1 << 20
MAX_WORKFLOW_BYTES: Final = 1 << 18
MAX_ROWS: Final = 10_000
MAX_BATCH_MS: Final = 60_000
_Limit = Annotated[int, Query(ge=1, le=100, description="entries per page")]
_After = Annotated[str, Query(description="`last_id` of the previous page")]


class NewRun(BaseModel, extra="forbid"):
    """A run to create."""

    workflow: str | dict[str, Any] = Field(
        description="the workflow in the format of `weft run`: a text in YAML, or an object"
    )
    rows: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_ROWS)] | None = Field(
        None, description="the rows, each an object with the inputs of the workflow"
    )
    input_file_id: str | None = Field(
        None, description="id of a file with the purpose `workflow`: JSON lines, one row each"
    )
    max_errors: int | None = Field(
        None, ge=0, strict=True, description="stop the run if more rows have failed"
    )
    budget_tokens: int | None = Field(
        None, ge=1, strict=True, description="stop the run before its calls use more tokens"
    )
    batch_ms: int = Field(
        0,
        ge=0,
        le=MAX_BATCH_MS,
        strict=True,
        description="wait this long, ms, for other runs of this workflow: all of them are rows of "
        "one process, and equal greedy calls are made once. Runs with a budget run alone",
    )

    @model_validator(mode="after")
    def _has_one_input(self) -> NewRun:
        if (self.rows is None) == (self.input_file_id is None):
            raise ValueError("needs either 'rows' or 'input_file_id', and not both")
        return self


def run_json(run: Run) -> dict[str, Any]:
    """Return a run as clients see it."""
    return {
        "id": run.id,
        "object": "workflow.run",
        "status": run.status.value,
        "created_at": run.created_s,
        "started_at": run.times.get(Status.IN_PROGRESS.value),
        "ended_at": run.times.get(run.status.value) if run.ended else None,
        "input_file_id": run.input_file or None,
        "output_file_id": run.output_file or None if run.ended else None,
        "max_errors": run.max_errors,
        "budget_tokens": run.budget_tokens,
        "batch_ms": run.batch_ms,
        "row_counts": {"total": run.rows, "completed": run.completed, "failed": run.failed},
        "usage": {"total_tokens": run.tokens},
        "error": None
        if run.error is None
        else {"code": run.error.code, "message": run.error.message},
    }


def router(auth: Authenticator, runs: Runs, turns: Turns, max_body_bytes: int) -> APIRouter:
    """Create the routes."""
    api = APIRouter(tags=["runs"])

    @api.post(
        "/v1/runs",
        summary="Run a workflow",
        openapi_extra=described(NewRun, required=True),
    )
    async def create_run(request: Request, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Run a workflow over rows in the background, in the format of `weft run`. The rows are in
        the request, or in a file that was uploaded to `/v1/files`. The run checks the workflow and
        the rows first: its error names file, line and reason. Python operators do not run over
        HTTP; databases and hosts are those of the gateway's settings, and databases are read
        only."""
        limit = min(MAX_BODY_BYTES, max_body_bytes)
        raw = await read_body(dict(request.headers.raw), request.receive, limit)
        await turns.take(tenant, len(raw))
        raw, body = light_body(raw)
        try:
            new = NewRun.model_validate(body)
        except ValidationError as error:
            first = error.errors()[0]
            raise errors.invalid_member(first["loc"], first["msg"]) from None
        text = new.workflow if isinstance(new.workflow, str) else _text(new.workflow)
        if len(text.encode("utf-8", "surrogatepass")) > MAX_WORKFLOW_BYTES:
            raise errors.invalid_member(
                ("workflow",), f"has at most {MAX_WORKFLOW_BYTES} bytes in UTF-8"
            )
        rows = None if new.rows is None else _lines(raw)
        run = runs.create(
            tenant, text, rows, input_file=new.input_file_id or "", batch_ms=new.batch_ms,
            budget_tokens=new.budget_tokens, max_errors=new.max_errors,
        )  # fmt: skip
        return run_json(run)

    @api.get("/v1/runs", summary="List runs")
    async def list_runs(
        tenant: str = Depends(auth.tenant), limit: _Limit = 20, after: _After = ""
    ) -> Response:
        """The tenant's runs of workflows on this gateway, the newest first."""
        return await page(turns, tenant, runs.runs(tenant, after), limit, run_json)

    @api.get("/v1/runs/{run_id}", summary="Get a run")
    async def get_run(run_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """The state of a run, its counts and its tokens."""
        return run_json(runs.find(tenant, run_id))

    @api.get("/v1/runs/{run_id}/events", summary="Follow a run", response_class=EventStream)
    async def listen_to_run(run_id: str, tenant: str = Depends(auth.tenant)) -> EventStream:
        """Server-sent events: `progress` with the run at each change, and at last `end` with the
        run. 429 if the tenant has too many listeners."""
        key = listener_key(tenant, runs.find(tenant, run_id).id)
        if runs.listeners.full(key):
            what = "This run, or its tenant, has too many listeners."
            raise ApiError(429, "too_many_listeners", what)
        return EventStream(_events(runs, key, run_id), headers={"cache-control": "no-store"})

    @api.get(
        "/v1/runs/{run_id}/output",
        summary="Get the output of a run",
        response_class=FileResponse,
        responses={200: {"content": {"application/x-jsonl": {}}}},
    )
    async def get_run_output(run_id: str, tenant: str = Depends(auth.tenant)) -> FileResponse:
        """The rows that have ended, as JSON lines in the order of the input: `row` (its number from
        0), the outputs, and `error`. 404 before the end of the run."""
        path = runs.batches.content(tenant, runs.output(tenant, run_id))
        return StoredContent(path, media_type="application/x-jsonl")

    @api.post("/v1/runs/{run_id}/cancel", summary="Cancel a run")
    async def cancel_run(run_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Abort the calls in flight. The rows that have ended are the output when the status is
        `cancelled`."""
        return run_json(runs.cancel(tenant, run_id))

    return api


class _Rows(msgspec.Struct):
    rows: list[msgspec.Raw]


def _lines(raw: bytes) -> list[bytes]:
    """Return the text of each row in one line. Parsed rows have lost repeated keys."""
    try:
        found = msgspec.json.decode(raw, type=_Rows)
    except RecursionError:
        raise errors.of("too_deeply_nested") from None
    return [bytes(row).replace(b"\n", b" ") for row in found.rows]


def _text(workflow: dict[str, Any]) -> str:
    """Return an object in YAML, of which JSON is a part."""
    return orjson.dumps(workflow, option=orjson.OPT_INDENT_2).decode()


async def _events(runs: Runs, key: ProgramKey, run_id: str) -> AsyncIterator[bytes]:
    """Yield the events of a run to its end."""
    listeners = runs.listeners
    # Registered only here: if the client has already disconnected, this generator neither starts
    # nor ends.
    listener = listeners.add(key)
    if listener is None:
        return
    before = b""
    try:
        while True:
            run = runs.find(key.tenant, run_id)
            now = orjson.dumps(run_json(run))
            if run.ended:
                yield b"event: end\ndata: %b\n\n" % now
                return
            if now != before:
                before = now
                yield b"event: progress\ndata: %b\n\n" % now
            try:
                if await asyncio.wait_for(listener.get(), listeners.heartbeat_s) is None:
                    return
            except TimeoutError:
                yield b": still here\n\n"
    except ApiError:
        # The run was deleted.
        return
    finally:
        listeners.remove(key, listener)
