"""Identifies a call's program by its path, headers and body."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from weft_gateway import errors
from weft_gateway.calls.call import Call
from weft_gateway.engine.engine_request import with_model
from weft_gateway.engine.registry import Registry
from weft_gateway.errors import ApiError
from weft_gateway.programs.families import fold, has_parent
from weft_gateway.programs.identity import Identity, resolve
from weft_gateway.programs.ids import IdentityError
from weft_gateway.programs.response_store import PRIVATE, ResponseStore


class Identifier:
    """Finds the program of a call that names one (`weft_gateway.programs.aliases`)."""

    def __init__(self, chains: ResponseStore, registry: Registry) -> None:
        self._chains = chains
        self._registry = registry

    def identify(self, call: Call) -> Awaitable[None] | None:
        """Set the call's model, program and thread. Returns an awaitable if it must look up
        parents. Raises ApiError, IdentityError, TableUnavailable.
        """
        body = call.body
        if call.previous and not call.previous.startswith(PRIVATE):
            body = {**body, "previous_response_id": call.previous}
        call.identity = identity = self._resolve(call, body)
        call.model = self.model_of(body)
        named = body.get("model")
        if call.model != named and named and isinstance(named, str):
            # An alias: the engine and all features see the model that it serves.
            call.body = {**call.body, "model": call.model}
            if call.reading is not None:
                call.reading.edited = True
            else:
                call.raw = with_model(call.raw, call.model)
        return self._fold(call) if identity.parent and has_parent(identity) else None

    async def _fold(self, call: Call) -> None:
        call.identity = await fold(self._chains, call.identity)

    async def announced(
        self, tenant: str, headers: list[tuple[bytes, bytes]], body: dict[str, Any]
    ) -> Identity:
        """Return the identity of an announced call. Raises IdentityError."""
        identity = resolve(
            tenant=tenant,
            headers=headers,
            body=body,
            path_program=None,
            chains=self._chains,
        )
        return await fold(self._chains, identity) if has_parent(identity) else identity

    def named(self, call: Call) -> Identity | None:
        """Return the identity from path and headers, for a call with an unusable body."""
        try:
            identity = self._resolve(call, {})
        except IdentityError:
            return None
        return None if identity.source == "none" else identity

    def model_of(self, body: dict[str, Any]) -> str:
        """Return the served model of a call. If only one is served, its engine decides about a
        missing or malformed name. Raises ApiError.
        """
        model = body.get("model")
        if isinstance(model, str) and model:
            served = self._registry.resolved(model)
            if not self._registry.knows(served):
                raise errors.model_not_found(model)
            return served
        models = self._registry.models()
        if len(models) > 1:
            raise ApiError(400, "missing_model", "You must provide a model.", param="model")
        return next(iter(models), "")

    def _resolve(self, call: Call, body: dict[str, Any]) -> Identity:
        return resolve(
            tenant=call.caller.tenant,
            headers=call.headers,
            body=body,
            path_program=call.program_in_path,
            chains=self._chains,
            chained=call.endpoint.chained,
        )
