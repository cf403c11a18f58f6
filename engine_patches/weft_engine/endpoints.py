"""The endpoint plugin: `/weft/*` on the engine's server, guarded by a shared secret."""

from __future__ import annotations

import hmac
import json
import os
from argparse import Namespace
from dataclasses import asdict
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
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

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Bind the report channel if the settings name one."""
        if engine_client is None:
            return
        config = engine_client.vllm_config.additional_config
        settings = PluginSettings.from_config(config)
        state.weft_hub = None
        if settings.channel:
            state.weft_hub = ReportServer(settings.channel, EngineMetrics().take)


def _refusal(status: int, message: str, code: str) -> JSONResponse:
    return JSONResponse(
        {"error": {"message": message, "type": "weft_error", "param": None, "code": code}}, status
    )


def _guard(request: Request) -> JSONResponse | None:
    secret = os.environ.get(SECRET_VARIABLE, "")
    given = request.headers.get(SECRET_HEADER, "")
    if secret and not hmac.compare_digest(secret.encode(), given.encode()):
        return _refusal(403, f"{SECRET_HEADER} is missing or wrong", "bad_secret")
    if getattr(request.app.state, "weft_hub", None) is None:
        return _refusal(503, "the engine was started without Weft's channel", "no_channel")
    return None


@router.get("/state")
async def state(request: Request) -> JSONResponse:
    """Return the queues and counters of every engine core."""
    refused = _guard(request)
    if refused is not None:
        return refused
    try:
        engines = await request.app.state.weft_hub.command({"do": "state"})
    except EngineLinkError as error:
        return _refusal(503, str(error), "no_engine")
    return JSONResponse({"weft": {"vllm": TESTED_VERSION}, "engines": engines})


@router.get("/calls/{call}")
async def call_report(request: Request, call: str) -> JSONResponse:
    """Return the report of a call that has finished or was aborted."""
    refused = _guard(request)
    if refused is not None:
        return refused
    report = await request.app.state.weft_hub.report(call, _REPORT_WAIT_S)
    if report is None:
        return _refusal(404, f"no report of call {call!r}", "unknown_call")
    return JSONResponse(json.loads(report.to_json()))


@router.post("/policy")
async def policy(request: Request) -> JSONResponse:
    """Switch the order with `{"policy": NAME}`; empty the prefix cache with `"reset_cache":
    true`."""
    refused = _guard(request)
    if refused is not None:
        return refused
    try:
        body = json.loads(await request.body())
        message = {
            "policy": str(body.get("policy", "")),
            "reset_cache": body.get("reset_cache", False) is True,
        }
    except (ValueError, AttributeError):
        return _refusal(400, "the body must be a JSON object", "bad_json")
    try:
        engines = await request.app.state.weft_hub.command(message)
    except EngineLinkError as error:
        return _refusal(400, str(error), "bad_command")
    return JSONResponse({"engines": engines})


@router.post("/kv")
async def kv(request: Request) -> JSONResponse:
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
    refused = _guard(request)
    if refused is not None:
        return refused
    try:
        command = KvCommand.from_body(json.loads(await request.body()))
    except ValueError as error:
        return _refusal(400, str(error), "bad_command")
    message = {"do": "kv", "kv": asdict(command)}
    try:
        engines = await request.app.state.weft_hub.command(message)
    except EngineLinkError as error:
        return _refusal(503, str(error), "no_engine")
    return JSONResponse({"engines": engines})
