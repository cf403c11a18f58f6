"""Administration: the order of the engines' waiting queues, the state of all replicas, and the
report on deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from weft_engine.wire import ORDER_NAMES

from weft_gateway.api import web
from weft_gateway.api.auth import Authenticator, Sight
from weft_gateway.api.body import described, read_model
from weft_gateway.calls.admission import Gates
from weft_gateway.config import Settings
from weft_gateway.engine.described import shallow
from weft_gateway.engine.engine_request import ReplicaKind
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.errors import ApiError, invalid_member
from weft_gateway.programs.alpha import SharedAlpha
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry.slo_tally import SloTally


class Options(BaseModel):
    """Options that all gateways share."""

    model_config = ConfigDict(extra="forbid")

    alpha: float | None = Field(
        default=None, ge=0, le=1, strict=True, description="of the balancer `work`"
    )

    @field_validator("alpha", mode="before")
    @classmethod
    def given(cls, alpha: Any) -> Any:
        """Refuse null, which would change nothing."""
        if alpha is None:
            raise ValueError("must be a number")
        return alpha


class Policy(BaseModel):
    """An order for the engines' waiting queues, options, or emptied prefix caches."""

    model_config = ConfigDict(extra="forbid")

    policy: str = Field(
        "",
        description=f"one of {', '.join(ORDER_NAMES)}; required without options and reset_cache",
        json_schema_extra={"enum": list(ORDER_NAMES)},
    )
    reset_cache: bool = Field(False, description="whether to empty the prefix caches too")
    options: Options = Field(Options(), description="values to change; the others stay")

    @field_validator("policy")
    @classmethod
    def known(cls, policy: str) -> str:
        """Validate the name of an order."""
        if policy not in ORDER_NAMES:
            raise ValueError(f"unknown policy {policy!r}; known: {', '.join(ORDER_NAMES)}")
        return policy

    @model_validator(mode="after")
    def complete(self) -> Policy:
        """Require something to do."""
        if not (self.policy or self.reset_cache or self.options.model_fields_set):
            raise ValueError("policy, options or reset_cache is required")
        return self


def guard(
    auth: Authenticator, settings: Settings, *, bodiless: bool = False
) -> Callable[[Request], None]:
    """Return a dependency of routes for administrators. bodiless: as in `check_admin`."""

    def check(request: Request) -> None:
        peer = request.client.host if request.client else ""
        headers = dict(request.headers.raw)
        auth.require_admin(headers, peer)
        web.check_admin(request.method, headers, settings, bodiless=bodiless)

    return check


def seeing(auth: Authenticator, settings: Settings) -> Callable[[Request], Sight]:
    """Return a function that tells what the key of a request shows. It raises ApiError 401."""

    def sight(request: Request) -> Sight:
        headers = dict(request.headers.raw)
        found = auth.sight(headers, request.client.host if request.client else "")
        if found.admin and not settings.admin_key:
            try:
                web.check_admin("GET", headers, settings)
            except ApiError:
                # A page of another origin may have sent it.
                return Sight(auth.caller({}).tenant, False)
        return found

    return sight


def router(
    auth: Authenticator,
    table: ProcessTable,
    registry: Registry,
    engine_client: EngineClient,
    gates: Gates,
    tally: SloTally,
    alpha: SharedAlpha,
    settings: Settings,
) -> APIRouter:
    """Create the routes for administrators: POST /weft/policy, GET /weft/state, GET /weft/slo."""

    guarded = [Depends(guard(auth, settings))]
    api = APIRouter(prefix="/weft", tags=["administration"], dependencies=guarded)

    async def ask(method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        async def one(replica: Replica) -> dict[str, Any]:
            if replica.kind is ReplicaKind.GATEWAY:
                return {"status": None, "error": "replica_is_gateway"}
            try:
                answer = await engine_client.fetch(replica, path, 30.0, method=method, message=body)
            except httpx.HTTPError as error:
                return {"status": None, "error": type(error).__name__}
            try:
                parsed = answer.json()
            except ValueError:
                parsed = None
            if parsed is None or not shallow(parsed):
                parsed = answer.body[:1000].decode("utf-8", "replace")
            return {"status": answer.status, "answer": parsed}

        replicas = list(registry)
        answers = await asyncio.gather(*(one(replica) for replica in replicas))
        return {replica.name: answer for replica, answer in zip(replicas, answers, strict=True)}

    @api.post(
        "/policy",
        summary="Change the order of every engine's queue",
        openapi_extra=described(Policy, required=True),
    )
    async def set_policy(request: Request) -> dict[str, Any]:
        """Each replica's answer by name. Options are those of all gateways on one Redis from now
        on. Any other content type than JSON is refused."""
        policy = await read_model(request, Policy, settings.max_body_bytes)
        options = policy.options.model_dump(exclude_none=True)
        if "alpha" in options and settings.balancer != "work":
            what = f"only the balancer `work` has it; this gateway uses `{settings.balancer}`"
            raise invalid_member(("options", "alpha"), what)
        if options:
            await alpha.change(options["alpha"])
        answers = {}
        if policy.policy or policy.reset_cache:
            message = {"policy": policy.policy, "reset_cache": policy.reset_cache}
            answers = await ask("POST", "/weft/policy", message)
        for name in answers if policy.reset_cache else ():
            registry.prefixes.forget(name)
        applied = all(answer["status"] == 200 for answer in answers.values())
        shown = {"options": options} if options else {}
        return {"policy": policy.policy, "applied": applied, "replicas": answers} | shown

    @api.get(
        "/state",
        summary="Get every replica's state and the gateway's integrity",
    )
    async def get_state() -> dict[str, Any]:
        """Each replica's own answer by name, and checks of the process table and of admission."""
        answers = await ask("GET", "/weft/state", None)
        # Other gateways open and close calls without an event here.
        in_flight = await table.count()
        return {
            "replicas": answers,
            "balancer": {
                "name": settings.balancer,
                "alpha": alpha.alpha if settings.balancer == "work" else None,
            },
            "table": {
                "violations": list(await table.check()),
                "in_flight": dict(in_flight),
                "work": dict(table.work()),
                "programs": (await table.counts())._asdict(),
                "local": table.local,
            },
            "memory": {"violations": gates.violations(), "replicas": gates.state()},
        }

    @api.get(
        "/slo",
        summary="Get attainment, causes of late units and fairness per class and tenant",
    )
    async def get_slo() -> dict[str, Any]:
        """Programs, turns and calls with a target that have ended at this gateway since it started.
        Counts of several gateways add up; compute their ratios from the sums."""
        return tally.report()

    return api
