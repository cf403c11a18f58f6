"""Models: what the replicas serve, together."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from weft_gateway.api.services import Services
from weft_gateway.errors import model_not_found


def router(services: Services) -> APIRouter:
    """GET /v1/models and /v1/models/{id}; ids may have slashes."""
    api = APIRouter(tags=["models"])

    @api.get("/v1/models", summary="List models")
    async def list_models(request: Request) -> dict[str, Any]:
        """The union over all replicas, each described as its engine describes it."""
        services.auth.caller(dict(request.headers.raw))
        return {"object": "list", "data": list(services.registry.models().values())}

    @api.get("/v1/models/{model_id:path}", summary="Look at a model")
    async def get_model(request: Request, model_id: str) -> Any:
        """One model."""
        services.auth.caller(dict(request.headers.raw))
        card = services.registry.models().get(model_id)
        if card is None:
            raise model_not_found(model_id)
        return card

    return api
