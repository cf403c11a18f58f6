"""The models that the replicas serve, in the form of each API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from weft_gateway.api.auth import Authenticator
from weft_gateway.engine.endpoints import api_of
from weft_gateway.engine.registry import Registry
from weft_gateway.errors import model_not_found


def router(auth: Authenticator, registry: Registry) -> APIRouter:
    """Create the routes GET /v1/models and /v1/models/{id}; ids may contain slashes."""
    api = APIRouter(tags=["models"], dependencies=[Depends(auth.tenant)])

    @api.get("/v1/models", summary="List models")
    async def list_models(request: Request) -> Any:
        """The models of all replicas, each as its engine describes it. Requests with the header
        `anthropic-version` get Anthropic's form.
        """
        cards = registry.listed()
        if api_of(request.url.path, request.headers.raw) == "openai":
            return {"object": "list", "data": list(cards.values())}
        ends = {"first_id": next(iter(cards), None), "last_id": next(reversed(cards), None)}
        data = [_anthropic(name, card) for name, card in cards.items()]
        return JSONResponse({"data": data, "has_more": False, **ends})

    @api.get("/v1/models/{model_id:path}", summary="Get a model")
    async def get_model(request: Request, model_id: str) -> Any:
        """One model, as its engine describes it. The id may contain slashes. Requests with the
        header `anthropic-version` get Anthropic's form.
        """
        card = registry.card(model_id)
        if card is None:
            raise model_not_found(model_id)
        is_openai = api_of(request.url.path, request.headers.raw) == "openai"
        return card if is_openai else JSONResponse(_anthropic(model_id, card))

    return api


def _anthropic(name: str, card: Mapping[str, object]) -> dict[str, object]:
    """Return a model in Anthropic's form. A date of release that is not known is 1970."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "max_input_tokens": card.get("max_model_len"),
    }
