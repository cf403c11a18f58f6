"""Replicas at run time: add, list, drain, resume and remove, for administrators."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from weft_run.urls import replica_name

from weft_gateway import errors
from weft_gateway.api.admin import guard
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import described, read_model
from weft_gateway.calls.members import Membership, Status
from weft_gateway.config import Settings
from weft_gateway.engine.health import HealthLoop
from weft_gateway.model.member import MemberState

_DRAIN_S: Final = 60.0
_LONGEST_DRAIN_S: Final = 86_400.0

Force = Annotated[bool, Query(description="do it even if calls or programs need the replica")]


class NewReplica(BaseModel):
    """An engine to add."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: str = Field(max_length=2048, description="base URL of the engine, without /v1")
    name: str | None = Field(None, description="by default its host, port and path")


class Drain(BaseModel):
    """How to drain a replica."""

    model_config = ConfigDict(extra="forbid")

    drain_s: float = Field(
        _DRAIN_S,
        ge=0,
        le=_LONGEST_DRAIN_S,
        allow_inf_nan=False,
        strict=True,
        description="time for which programs keep the replica as their home, seconds",
    )


def router(
    auth: Authenticator,
    members: Membership,
    health: HealthLoop,
    settings: Settings,
) -> APIRouter:
    """Create the routes below /weft/replicas."""
    api = APIRouter(prefix="/weft/replicas", tags=["administration"])
    guarded = [Depends(guard(auth, settings))]
    bodiless = [Depends(guard(auth, settings, bodiless=True))]

    async def one(name: str) -> dict[str, Any]:
        return _json(await members.one(name))

    @api.get("", summary="List the replicas", dependencies=guarded)
    async def list_replicas() -> dict[str, Any]:
        """Every replica with its state and its use, over all gateways."""
        return {"replicas": [_json(status) for status in await members.status()]}

    @api.post(
        "",
        summary="Add a replica",
        responses={201: {"description": "Added"}},
        openapi_extra=described(NewReplica, required=True),
        dependencies=guarded,
    )
    async def add_replica(request: Request, response: Response) -> dict[str, Any]:
        """201 if it is new, 200 if it is a member already. A replica that cannot be reached is
        added, too, and gets calls as soon as it is healthy. 400 `replica_is_gateway` for a Weft
        gateway. All gateways on one Redis use it within about a second."""
        body = await read_model(request, NewReplica, settings.max_body_bytes)
        member = "name"
        try:
            own = replica_name(body.name) if body.name else ""
            member = "url"
            name, new = await members.add(own, body.url)
        except ValueError as error:
            raise errors.invalid_member((member,), str(error)) from None
        replica = members.registry.get(name)
        if new and replica is not None:
            await health.check(replica)
        response.status_code = 201 if new else 200
        return await one(name)

    @api.post(
        "/{name}/drain",
        summary="Drain a replica",
        openapi_extra=described(Drain, required=False),
        dependencies=bodiless,
    )
    async def drain_replica(request: Request, name: str, force: Force = False) -> dict[str, Any]:
        """The replica takes no new programs. Programs that have it as their home keep it for
        `drain_s` seconds, and move with their next call after that. Calls in flight end normally.
        409 if no other replica takes calls for one of its models, unless `force` is set."""
        body = await read_model(request, Drain, settings.max_body_bytes)
        await members.drain(name, body.drain_s, force=force)
        return await one(name)

    @api.post(
        "/{name}/resume",
        summary="End a drain",
        dependencies=bodiless,
    )
    async def resume_replica(name: str) -> dict[str, Any]:
        """The replica takes all calls again."""
        await members.resume(name)
        return await one(name)

    @api.delete(
        "/{name}",
        summary="Remove a replica",
        dependencies=guarded,
    )
    async def remove_replica(name: str, force: Force = False) -> dict[str, Any]:
        """409 unless the replica is safe to delete, or `force` is set. Calls in flight end normally
        as long as the replica runs."""
        await members.remove(name, force=force)
        return {"name": name, "removed": True}

    return api


def _json(status: Status) -> dict[str, Any]:
    member, replica = status.member, status.replica
    drains = member.state is MemberState.DRAINING
    healthy = replica.circuit.healthy
    return {
        "name": member.name,
        "url": member.url,
        "state": "draining" if drains else "serving" if healthy else "down",
        "healthy": healthy,
        "since": member.since_s or None,
        "homes_until": member.since_s + member.drain_s if drains else None,
        "models": sorted(replica.served),
        "calls_in_flight": status.in_flight,
        "homes": status.homes,
        "safe_to_delete": not status.obstacles,
        "waits_for": status.obstacles,
    }
