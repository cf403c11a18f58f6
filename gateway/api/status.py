"""Health and metrics: for load balancers and for Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from gateway.api.services import Services
from gateway.engine.registry import Replica


def replica_json(replica: Replica, in_flight: int) -> dict[str, Any]:
    """A replica's state. `max_model_len` in tokens, where its engine tells it."""
    lengths = {
        name: card["max_model_len"]
        for name, card in replica.models.items()
        if card.get("max_model_len") is not None
    }
    return {
        "name": replica.name,
        "url": replica.url,
        "healthy": replica.circuit.healthy,
        "failures": replica.circuit.failures,
        "last_error": replica.circuit.last_error or None,
        "kind": replica.kind.value,
        "models": sorted(replica.served),
        "max_model_len": lengths,
        "calls_in_flight": in_flight,
    }


def router(services: Services) -> APIRouter:
    """GET /health and /metrics."""
    api = APIRouter(tags=["status"])

    @api.get("/health", summary="Is the gateway able to serve")
    async def health() -> JSONResponse:
        """200 with each replica's state; 503 where none takes calls."""
        in_flight = services.table.in_flight()
        replicas = [replica_json(r, in_flight.get(r.name, 0)) for r in services.registry]
        good = bool(services.registry.able())
        body = {
            "status": "ok" if good else "no_replica",
            "replicas": replicas,
            "table": {"local": services.table.local},
        }
        if good:
            return JSONResponse(body)
        retry_after = {"retry-after": str(services.settings.retry_after_s)}
        return JSONResponse(body, status_code=503, headers=retry_after)

    @api.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        """The text exposition format."""
        census = await services.table.census()
        services.metrics.programs.set(census.alive)
        services.metrics.begun.value = census.created
        services.metrics.ended.value = census.ended
        services.metrics.local.set(services.table.local)
        in_flight = services.table.in_flight()
        for replica in services.registry:
            services.metrics.healthy.labels(replica.name).set(replica.circuit.healthy)
            services.metrics.in_flight.labels(replica.name).set(in_flight.get(replica.name, 0))
        return Response(services.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return api
