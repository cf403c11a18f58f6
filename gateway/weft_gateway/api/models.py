"""The models that the replicas serve."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from weft_gateway.api import schemas
from weft_gateway.api.auth import Authenticator
from weft_gateway.engine.registry import Registry
from weft_gateway.errors import model_not_found


def router(auth: Authenticator, registry: Registry) -> APIRouter:
    """GET /v1/models and /v1/models/{id}; ids may have slashes."""
    api = APIRouter(tags=["models"])

    @api.get("/v1/models", summary="List models", response_model=schemas.ModelList)
    async def list_models(request: Request) -> dict[str, Any]:
        """The models of all replicas, each as its engine describes it."""
        auth.caller(dict(request.headers.raw))
        return {"object": "list", "data": list(registry.models().values())}

    @api.get("/v1/models/{model_id:path}", summary="Get a model", response_model=schemas.Model)
    async def get_model(request: Request, model_id: str) -> Any:
        """One model, as its engine describes it. The id may contain slashes."""
        auth.caller(dict(request.headers.raw))
        card = registry.models().get(model_id)
        if card is None:
            raise model_not_found(model_id)
        return card

    return api
