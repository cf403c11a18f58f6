"""`/v1/workflows` and `/v1/runs`: batch workflows that the gateway runs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec
import orjson
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import ValidationError

from weft_gateway import errors
from weft_gateway.api import schemas_workflows as schemas
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import described, json_object, light_body
from weft_gateway.api.files import StoredContent
from weft_gateway.api.http import read_body
from weft_gateway.api.lists import page
from weft_gateway.api.run_events import events, listener_key
from weft_gateway.api.stories import EventStream
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.errors import ApiError
from weft_gateway.runs.flow_store import Run, RunStatus, StoredWorkflow
from weft_gateway.runs.flows import Flows, Wanted
from weft_gateway.telemetry.listeners import Listeners

_YAML: Final = frozenset(
    {"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain"}
)
_JSON: Final = "application/json"
# PyYAML reads each half of such a pair as a character.
_PAIR: Final = re.compile(rb"\\u[dD][89abAB]")
_TEXT: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            _JSON: {"schema": {"type": "object"}},
            "application/yaml": {"schema": {"type": "string"}},
        },
    }
}
_Limit = Annotated[int, Query(ge=1, le=100, description="entries per page")]
_After = Annotated[str, Query(description="`last_id` of the previous page")]


def workflow_json(workflow: StoredWorkflow) -> dict[str, Any]:
    """Return a workflow with its plan (`schemas.Workflow`)."""
    return {
        "id": workflow.id,
        "object": "workflow",
        "created_at": workflow.created_s,
        **workflow.plan,
    }


def run_json(run: Run) -> dict[str, Any]:
    """Return a run (`schemas.Run`)."""
    begun = RunStatus.IN_PROGRESS.value in run.times
    return {
        "id": run.id,
        "object": "workflow.run",
        "workflow_id": run.workflow,
        "status": run.status.value,
        "created_at": run.created_s,
        "started_at": run.times.get(RunStatus.IN_PROGRESS.value),
        "ended_at": run.times.get(run.status.value) if run.ended else None,
        "model": run.model or None,
        "input_file_id": run.input_file or None,
        "output_file_id": run.output_file or None if run.ended else None,
        "max_errors": run.max_errors,
        "budget_tokens": run.budget_tokens,
        "batch_ms": run.batch_ms,
        "row_counts": {
            "total": run.rows if begun else None,
            "completed": run.completed,
            "failed": run.failed,
        },
        "usage": {"total_tokens": run.tokens},
        "operators": run.operators,
        "error": None
        if run.error is None
        else {"code": run.error.code, "message": run.error.message},
    }


def router(
    auth: Authenticator, flows: Flows, listeners: Listeners, turns: Turns, settings: Settings
) -> APIRouter:
    """Create the routes."""
    api = APIRouter(tags=["workflows"])

    @api.post(
        "/v1/workflows",
        summary="Create a workflow",
        response_model=schemas.Workflow,
        openapi_extra=_TEXT,
    )
    async def create_workflow(
        request: Request, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Check and store a workflow in YAML or JSON, in the format of `weft run`. The answer shows
        the operators after all rewrites. An error names file, line and reason. Python operators do
        not run over HTTP; databases and hosts are those of the gateway's settings."""
        text, file = await _text(request, settings.workflow_bytes)
        return workflow_json(await flows.create(tenant, text, file))

    @api.get("/v1/workflows", summary="List workflows", response_model=schemas.WorkflowList)
    async def list_workflows(
        tenant: str = Depends(auth.tenant), limit: _Limit = 20, after: _After = ""
    ) -> Response:
        """The tenant's workflows on this gateway, the newest first."""
        found = flows.workflows(tenant, limit + 1, after)
        return await page(turns, tenant, found, limit, workflow_json)

    @api.get(
        "/v1/workflows/{workflow_id}", summary="Get a workflow", response_model=schemas.Workflow
    )
    async def get_workflow(workflow_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """A workflow with its plan."""
        return workflow_json(flows.workflow(tenant, workflow_id))

    @api.delete(
        "/v1/workflows/{workflow_id}",
        summary="Delete a workflow",
        response_model=schemas.DeletedWorkflow,
    )
    async def delete_workflow(
        workflow_id: str, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Delete a workflow. Its runs continue."""
        flows.delete(tenant, workflow_id)
        return {"id": workflow_id, "object": "workflow", "deleted": True}

    @api.post(
        "/v1/workflows/{workflow_id}/runs",
        summary="Run a workflow",
        response_model=schemas.Run,
        openapi_extra=described(schemas.NewRun, required=True),
    )
    async def create_run(
        request: Request, workflow_id: str, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Run a workflow over rows in the background. The rows are in the request, or in a file
        that was uploaded to `/v1/files`. A file is checked first: an error ends the run. With
        `batch_ms`, the run shares a process, and equal greedy calls, with runs of this workflow
        that begin within this time."""
        limit = min(settings.workflow_input_bytes, settings.max_body_bytes)
        raw = await read_body(dict(request.headers.raw), request.receive, limit)
        await turns.take(tenant, len(raw))
        raw, body = light_body(raw)
        try:
            new = schemas.NewRun.model_validate(body)
        except ValidationError as error:
            first = error.errors()[0]
            raise errors.invalid_member(first["loc"], first["msg"]) from None
        rows = None if new.rows is None else _lines(raw)
        wanted = Wanted(
            rows, new.input_file_id or "", new.budget_tokens, new.max_errors, new.batch_ms
        )
        return run_json(await flows.begin(tenant, workflow_id, wanted))

    @api.get("/v1/runs", summary="List runs", response_model=schemas.RunList)
    async def list_runs(
        tenant: str = Depends(auth.tenant), limit: _Limit = 20, after: _After = ""
    ) -> Response:
        """The tenant's runs of workflows on this gateway, the newest first."""
        found = flows.runs(tenant, limit + 1, after)
        return await page(turns, tenant, found, limit, run_json)

    @api.get("/v1/runs/{run_id}", summary="Get a run", response_model=schemas.Run)
    async def get_run(run_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """The state of a run, its counts and its tokens."""
        return run_json(flows.find(tenant, run_id))

    @api.get("/v1/runs/{run_id}/events", summary="Follow a run", response_class=EventStream)
    async def listen_to_run(
        run_id: str,
        tenant: str = Depends(auth.tenant),
        last_event_id: Annotated[str, Header(description="id of the last event received")] = "",
    ) -> EventStream:
        """Server-sent events: `progress` with the run, `row` with each row that has ended
        (`{"row": 3, "failed": false}`), and at last `end` with the run. With `Last-Event-ID`, the
        rows after this event follow; rows that ended before a restart of the gateway are not
        repeated. 429 if the tenant has too many listeners."""
        run = flows.find(tenant, run_id)
        key = listener_key(tenant, run.id)
        if listeners.full(key):
            what = "This run, or its tenant, has too many listeners."
            raise ApiError(429, "too_many_listeners", what)
        stream: AsyncIterator[bytes] = events(
            flows, listeners, key, run.id, last_event_id, run_json
        )
        return EventStream(stream, headers={"cache-control": "no-store"})

    @api.get(
        "/v1/runs/{run_id}/output",
        summary="Get the output of a run",
        response_class=FileResponse,
        responses={200: {"content": {"application/x-jsonl": {}}}},
    )
    async def get_run_output(run_id: str, tenant: str = Depends(auth.tenant)) -> FileResponse:
        """The rows that have ended, as JSON lines in the order of the input: `row` (its number from
        0), the outputs, and `error`. 404 before the end of the run."""
        path = flows.batches.content(tenant, flows.output(tenant, run_id))
        return StoredContent(path, media_type="application/x-jsonl")

    @api.post("/v1/runs/{run_id}/cancel", summary="Cancel a run", response_model=schemas.Run)
    async def cancel_run(run_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """Abort the calls in flight. The rows that have ended are the output when the status is
        `cancelled`."""
        return run_json(flows.cancel(tenant, run_id))

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


async def _text(request: Request, limit: int) -> tuple[str, str]:
    """Return the text of a workflow, and its name in messages. Raises ApiError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _YAML and kind != _JSON:
        what = "The content type must be application/yaml or application/json."
        raise ApiError(415, "wrong_content_type", what)
    raw = await read_body(dict(request.headers.raw), request.receive, limit)
    if kind == _JSON:
        raw, body = json_object(raw)
        # Valid JSON has tabs only between values, where YAML refuses them.
        raw = orjson.dumps(body) if _PAIR.search(raw) else raw.replace(b"\t", b" ")
    try:
        return raw.decode("utf-8-sig"), f"workflow.{'json' if kind == _JSON else 'yaml'}"
    except UnicodeDecodeError as error:
        what = f"The workflow must be UTF-8: invalid byte at position {error.start}."
        raise ApiError(400, "invalid_workflow", what) from None
