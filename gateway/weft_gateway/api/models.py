"""Models: what the replicas serve, together."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from weft_gateway.api.auth import Authenticator
from weft_gateway.engine.registry import Registry
from weft_gateway.errors import model_not_found


def router(auth: Authenticator, registry: Registry) -> APIRouter:
    """GET /v1/models and /v1/models/{id}; ids may have slashes."""
    api = APIRouter(tags=["models"])

    @api.get("/v1/models", summary="List models")
    async def list_models(request: Request) -> dict[str, Any]:
        """The union over all replicas, each described as its engine describes it."""
        auth.caller(dict(request.headers.raw))
        return {"object": "list", "data": list(registry.models().values())}

    @api.get("/v1/models/{model_id:path}", summary="Look at a model")
    async def get_model(request: Request, model_id: str) -> Any:
        """One model."""
        auth.caller(dict(request.headers.raw))
        card = registry.models().get(model_id)
        if card is None:
            raise model_not_found(model_id)
        return card

    return api
