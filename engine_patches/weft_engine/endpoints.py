"""The endpoint plugin: `/weft/*` on the engine's server, guarded by a shared secret."""

from __future__ import annotations

import hmac
import json
import os
from argparse import Namespace
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from weft_engine.kv_command import KvCommand
from weft_engine.metrics import EngineMetrics
from weft_engine.report_server import EngineLinkError, ReportServer
from weft_engine.settings import PluginSettings
from weft_engine.version_check import TESTED_VERSION

SECRET_HEADER: Final = "x-weft-secret"
SECRET_VARIABLE: Final = "WEFT_ENGINE_SECRET"
_REPORT_WAIT_S: Final = 1.0

router = APIRouter(prefix="/weft", tags=["weft"])


class WeftEndpoints:
    """Entry point `weft` of the group `vllm.endpoint_plugins`."""

    name = "weft"
    required_tasks: tuple[str, ...] | None = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        """Add the routes."""
        app.include_router(router)
        app.add_exception_handler(_Refused, _refusal)
        app.add_exception_handler(EngineLinkError, _no_engine)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Bind the report channel if the settings name one."""
        state.weft_hub = None
        if engine_client is None:
            return
        settings = PluginSettings.from_config(engine_client.vllm_config.additional_config)
        if settings.channel:
            state.weft_hub = ReportServer(settings.channel, EngineMetrics().take)


class _Refused(Exception):
    """The answer to a request that is refused."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def _refusal(request: Request, error: Any) -> JSONResponse:
    body = {"message": str(error), "type": "weft_error", "param": None, "code": error.code}
    return JSONResponse({"error": body}, error.status)


def _no_engine(request: Request, error: Exception) -> JSONResponse:
    return _refusal(request, _Refused(503, str(error), "no_engine"))


def _checked(request: Request) -> ReportServer:
    """Check the secret, and return the report server."""
    secret = os.environ.get(SECRET_VARIABLE, "")
    given = request.headers.get(SECRET_HEADER, "")
    if secret and not hmac.compare_digest(secret.encode(), given.encode()):
        raise _Refused(403, f"{SECRET_HEADER} is missing or wrong", "bad_secret")
    reports: ReportServer | None = request.app.state.weft_hub
    if reports is None:
        raise _Refused(503, "the engine was started without Weft's channel", "no_channel")
    return reports


_Reports = Annotated[ReportServer, Depends(_checked)]


@router.get("/state")
async def state(reports: _Reports) -> dict[str, Any]:
    """Return the queues and counters of every engine core."""
    engines = await reports.command({"do": "state"})
    return {"weft": {"vllm": TESTED_VERSION}, "engines": engines}


@router.get("/calls/{call}")
async def call_report(reports: _Reports, call: str) -> dict[str, Any]:
    """Return the report of a call that has finished or was aborted."""
    report = await reports.report(call, _REPORT_WAIT_S)
    if report is None:
        raise _Refused(404, f"no report of call {call!r}", "unknown_call")
    return asdict(report)


@router.post("/policy")
async def policy(reports: _Reports, request: Request) -> dict[str, Any]:
    """Switch the order with `{"policy": NAME}`; change options of the orders with `"options":
    {NAME: VALUE}`; empty the prefix cache with `"reset_cache": true`."""
    try:
        body = json.loads(await request.body())
        message = {
            "policy": str(body.get("policy", "")),
            "reset_cache": body.get("reset_cache", False) is True,
            "options": dict(body.get("options") or {}),
        }
    except (ValueError, TypeError, AttributeError):
        why = "the body must be a JSON object, and options an object in it"
        raise _Refused(400, why, "bad_json") from None
    try:
        return {"engines": await reports.command(message)}
    except EngineLinkError as error:
        raise _Refused(400, str(error), "bad_command") from None


@router.post("/kv")
async def kv(reports: _Reports, request: Request) -> dict[str, Any]:
    """Apply a command to a program's KV blocks.

    `{"action": "retain", "program": P, "ttl_s": 60}` pins them, with `"tokens": N` only the full
    blocks of the context's first N tokens. `{"action": "release", "program": P}` ends the pin.
    `{"action": "priority", "program": P, "priority": 1, "ttl_s": 60}` sets a reuse priority, which
    the engine expires; without `ttl_s` it is permanent. `{"action": "give_up", "program": P}` ends
    the protection of prefilled blocks, and `{"action": "forget", "program": P}` reports that the
    program has ended.

    Commands are advice. They take effect with the next step, or after the current one. Protected
    blocks are still reused if no others are left.
    """
    try:
        command = KvCommand.from_body(json.loads(await request.body()))
    except ValueError as error:
        raise _Refused(400, str(error), "bad_command") from None
    return {"engines": await reports.command({"do": "kv", "kv": asdict(command)})}
