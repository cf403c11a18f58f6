"""The models that the replicas serve."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from weft_gateway.api import schemas
from weft_gateway.api.auth import Authenticator
from weft_gateway.engine.registry import Registry
from weft_gateway.errors import model_not_found


def router(auth: Authenticator, registry: Registry) -> APIRouter:
    """Create the routes GET /v1/models and /v1/models/{id}; ids may contain slashes."""
    api = APIRouter(tags=["models"], dependencies=[Depends(auth.tenant)])

    @api.get("/v1/models", summary="List models", response_model=schemas.ModelList)
    async def list_models() -> dict[str, Any]:
        """The models of all replicas, each as its engine describes it."""
        return {"object": "list", "data": list(registry.models().values())}

    @api.get("/v1/models/{model_id:path}", summary="Get a model", response_model=schemas.Model)
    async def get_model(model_id: str) -> Any:
        """One model, as its engine describes it. The id may contain slashes."""
        card = registry.models().get(model_id)
        if card is None:
            raise model_not_found(model_id)
        return card

    return api
