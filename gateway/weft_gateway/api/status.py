"""Health, readiness and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from weft_gateway.api.auth import Authenticator
from weft_gateway.engine.described import costs_json
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.errors import RETRY_AFTER_S
from weft_gateway.policies.costs import Costs
from weft_gateway.programs.table import ProcessTable, TableUnavailable
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.tasks import Supervisor, TaskState

# Shorter than the usual timeout of a health check.
_PING_S: Final = 1.0


def replica_json(replica: Replica, in_flight: int, *, admin: bool) -> dict[str, Any]:
    """Return a replica's state. Only administrators see its address, which
    errors contain too.
    """
    where = {"url": replica.url, "last_error": replica.circuit.last_error or None}
    lengths = {
        name: card["max_model_len"]
        for name, card in replica.models.items()
        if card.get("max_model_len") is not None
    }
    return {
        "name": replica.name,
        **(where if admin else {}),
        "healthy": replica.circuit.healthy,
        "draining": replica.homes_until is not None,
        "failures": replica.circuit.failures,
        "kind": replica.kind.value,
        "models": sorted(replica.served),
        "max_model_len": lengths,
        "refuses": sorted(replica.refuses),
        "slots": replica.slots,
        **({} if replica.costs is None else {"costs": costs_json(replica.costs)}),
        "calls_in_flight": in_flight,
    }


def task_json(task: TaskState) -> dict[str, Any]:
    """Return the state of a background task that failed recently. The log has the full error."""
    return {"name": task.name, "failures": task.failures, "last_error": task.last_error}


def router(
    auth: Authenticator,
    table: ProcessTable,
    registry: Registry,
    counts: Metrics,
    tasks: Supervisor,
    costs: Costs | None,
) -> APIRouter:
    """Create the routes GET /health, /ready and /metrics. costs: None if the gateway does not
    predict costs.
    """
    api = APIRouter(tags=["status"])

    async def look_at_table() -> tuple[bool, Mapping[str, int]]:
        """Return whether the table's store answers, and the open calls per replica."""
        try:
            async with asyncio.timeout(_PING_S):
                await table.ping()
                return True, await table.count()
        except (TableUnavailable, TimeoutError):
            return False, table.in_flight()

    async def state(request: Request, response: Response, *, ready: bool) -> dict[str, Any]:
        peer = request.client.host if request.client else ""
        admin = auth.is_admin(dict(request.headers.raw), peer)
        answers, in_flight = await look_at_table()
        replicas = [replica_json(r, in_flight.get(r.name, 0), admin=admin) for r in registry]
        status = "ok"
        serving = registry.serving()
        if not serving:
            status = "no_replica"
        elif ready and not answers:
            status = "table_unavailable"
        elif ready and all("api_key" in r.refuses for r in serving):
            status = "replica_key_refused"
        if status != "ok":
            response.status_code = 503
            response.headers["retry-after"] = str(RETRY_AFTER_S)
        return {
            "status": status,
            "table": {"state": "ok" if answers else "unavailable", "local": table.local},
            "replicas": replicas,
            "failing_tasks": [task_json(task) for task in tasks.failing()],
        }

    health: dict[str, Any] = {
        "responses": {503: {"description": "Unavailable"}},
    }

    @api.get("/health", summary="Check whether the gateway can serve calls", **health)
    async def get_health(request: Request, response: Response) -> dict[str, Any]:
        """200 with the state of each replica and of the process table; 503 if no replica takes new
        programs: each one is unhealthy or drains. `failing_tasks` lists background tasks that
        failed within the last 30 s; each is restarted. Neither an unreachable table nor a failing
        task changes the status: calls are served. Only administrators see the replicas' addresses
        and last errors."""
        return await state(request, response, ready=False)

    @api.get("/ready", summary="Check whether everything that the gateway needs is up", **health)
    async def get_ready(request: Request, response: Response) -> dict[str, Any]:
        """As `/health`, and 503 also if the process table is unreachable or every replica refuses
        the gateway's key."""
        return await state(request, response, ready=True)

    @api.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
    async def get_metrics() -> Response:
        """All series in Prometheus's text format."""
        programs = await table.counts()
        counts.programs.set(programs.alive)
        counts.begun.value = programs.created
        counts.ended.value = programs.ended
        counts.local.set(table.local)
        in_flight = await table.count()
        for replica in registry:
            counts.healthy.labels(replica.name).set(replica.circuit.healthy)
            counts.in_flight.labels(replica.name).set(in_flight.get(replica.name, 0))
        names = [] if costs is None else [replica.name for replica in registry]
        speeds = {name: known for name in names if costs and (known := costs.speed(name))}
        counts.show_costs(speeds, table.work())
        return Response(counts.render(), media_type=CONTENT_TYPE_LATEST)

    return api
