"""Sessions are the handles of programs in the HTTP API. A tenant sees only its own sessions."""

from __future__ import annotations

import secrets
from time import time
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from weft_gateway import errors
from weft_gateway.allowances import (
    NEEDS_PRICES,
    NO_BUDGET,
    BudgetEntry,
    written,
    written_limits,
)
from weft_gateway.api.auth import Authenticator
from weft_gateway.api.body import check_depth, described, read_model
from weft_gateway.api.lists import page
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.calls.spending import of_program
from weft_gateway.calls.turns import Turns
from weft_gateway.config import Settings
from weft_gateway.model import Program, ProgramKey
from weft_gateway.model.slo import NO_GOAL, Slos
from weft_gateway.model.spending import NO_ALLOWANCE, Changes
from weft_gateway.policies.goals import session_goal
from weft_gateway.policies.hints_values import MAX_DEADLINE_S
from weft_gateway.programs.handles import PREFIX
from weft_gateway.programs.ids import IdentityError, from_bytes, from_json
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry.finished import finished, known_by, regrouped
from weft_gateway.telemetry.receipts import Receipts

# Sessions listed per turn, and the size of a body that takes as long to read.
_A_TURN: Final = 64
_TURN_BYTES: Final = 1 << 18


class NewSession(BaseModel):
    """A session to start. All members are optional."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(
        None, description="opaque text of at most 256 bytes; the gateway generates one if missing"
    )
    metadata: dict[str, Any] | None = Field(None, description="returned, not stored")
    slo: str | None = Field(None, description="the session's SLO class")
    deadline_s: float | None = Field(
        None,
        gt=0,
        le=MAX_DEADLINE_S,
        allow_inf_nan=False,
        strict=True,
        description="deadline in seconds, from the first call or the begin of each turn, by the "
        "scope of the class",
    )
    budget: BudgetEntry | None = Field(None, description="what all its calls may use")
    kind: Any = Field(None, deprecated=True, description="without effect")
    stages: Any = Field(None, deprecated=True, description="without effect")


class SessionChange(BaseModel):
    """What to change of a session."""

    model_config = ConfigDict(extra="forbid")

    budget: BudgetEntry | None = Field(
        None, description="members to set; null removes a limit, or the whole budget"
    )


def _budget(program: Program) -> dict[str, Any]:
    """Return the budget, if there is one, and what of it is used, reserved by calls in flight, and
    left.
    """
    if program.allowance is NO_ALLOWANCE:
        return {}
    balance = of_program(program, program.allowance)
    limits, shown = written_limits(program.allowance), written(balance.used)
    reserved = written(balance.reserved)
    return {
        "budget": {**limits, "at_limit": program.allowance.at_limit},
        "used": {name: shown[name] for name in limits},
        "reserved": {name: reserved[name] for name in limits},
        "left": balance.left(),
    }


def _told(program: Program) -> dict[str, Any]:
    """Return until when each hint holds. All prefills together are one hint."""
    return {
        "prefills" if told.name.startswith(PREFIX) else told.name: {"until": told.until_s}
        for told in sorted(program.attributes, key=lambda told: told.until_s)
    }


def session_json(program: Program, known_by: str | None = None) -> dict[str, Any]:
    """Return a program in the API's format. known_by: the name that assigned
    the latest call to the program; None if no call came through this gateway.
    """
    answered = program.calls_closed - program.errors
    # Engines without the plugin count tokens, and report no times.
    timed = program.service_s > 0 or answered <= 0
    counted = program.prompt_tokens > 0 or timed

    def used(amount: float) -> float | None:
        return amount if timed else None

    def tokens(amount: int) -> int | None:
        return amount if counted else None

    return {
        "id": program.key.program,
        "object": "session",
        "status": "active" if program.threads else "idle",
        "known_by": known_by,
        "created_at": program.arrival_s,
        "service_s": used(program.service_s),
        "waiting_s": used(program.waiting_s),
        "critical_path_s": used(program.critical_path_s),
        "calls": program.calls,
        "calls_in_flight": len(program.threads),
        "errors": program.errors,
        "prompt_tokens": tokens(program.prompt_tokens),
        "cached_tokens": tokens(program.cached_tokens),
        "output_tokens": tokens(program.output_tokens),
        "preemptions": used(program.preemptions),
        "replicas": list(program.replicas),
        "threads": [
            {
                "call": thread.call,
                "thread": thread.thread,
                "parent": thread.parent or None,
                "replica": thread.replica,
                "arrival": thread.arrival_s,
                "waiting_s": thread.waiting_s,
                "service_s": thread.service_s,
            }
            for thread in program.threads
        ],
        "told": _told(program),
        "slo": program.goal.slo or None,
        "target": program.goal.target_s or None,
        **_budget(program),
        "last_call_arrival": program.last_arrival_s or None,
        "last_call_completion": program.last_completion_s or None,
    }


def budget_changes(budget: BudgetEntry | None, settings: Settings) -> Changes:
    """Return the changes of a budget; None removes it. Raises ApiError."""
    if budget is not None and budget.dollars is not None and not settings.prices_file:
        raise errors.invalid_member(("budget", "dollars"), NEEDS_PRICES)
    return NO_BUDGET if budget is None else budget.changes()


async def changed(
    request: Request, key: ProgramKey, table: ProcessTable, settings: Settings
) -> Program:
    """Change a session as the request's body says. Raises ApiError."""
    change = await read_model(request, SessionChange, settings.max_body_bytes)
    program = await table.get(key)
    if program is not None and "budget" in change.model_fields_set:
        program = await table.set_budget(key, budget_changes(change.budget, settings), time())
    if program is None:
        raise errors.of("session_not_found", name=key.program)
    return program


def router(
    auth: Authenticator,
    table: ProcessTable,
    lifecycle: Lifecycle,
    receipts: Receipts,
    turns: Turns,
    slos: Slos,
    settings: Settings,
) -> APIRouter:
    """Create the routes. Ids in paths stay percent-encoded until `path_id` decodes them."""
    api = APIRouter(tags=["sessions"])

    @api.post(
        "/v1/sessions",
        status_code=201,
        summary="Start a session",
        openapi_extra=described(NewSession, required=False),
    )
    async def create_session(
        request: Request, response: Response, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Create a session before its first call. The status is 200 if the session exists already.
        This step is optional: the first call that names a session creates it."""
        new = await read_model(request, NewSession, settings.max_body_bytes)
        name = f"sess-{secrets.token_hex(12)}" if new.id is None else from_json(new.id, "id")
        check_depth(new.metadata)
        key, now_s = program_key(tenant, name, "id"), time()
        known = None
        if new.slo is None and new.deadline_s is not None:
            known = await table.get(key)
        present = NO_GOAL if known is None else known.goal
        try:
            ask = session_goal(slos, tenant, new.slo, new.deadline_s, present)
        except ValueError as error:
            member = "slo" if str(error).startswith("the classes") else "deadline_s"
            raise errors.invalid_member((member,), str(error)) from None
        changes = {} if new.budget is None else budget_changes(new.budget, settings)
        program, created = await table.start(key, now_s, ask)
        if changes:
            program = await table.set_budget(key, changes, now_s) or program
        answer = session_json(program)
        if new.metadata is not None:
            answer["metadata"] = new.metadata
        if not created:
            response.status_code = 200
        return answer

    @api.get("/v1/sessions", summary="List sessions")
    async def list_sessions(
        request: Request,
        tenant: str = Depends(auth.tenant),
        limit: Annotated[int, Query(ge=1, le=1000, description="sessions per page")] = 20,
        after: Annotated[str, Query(description="`last_id` of the previous page")] = "",
    ) -> Response:
        """The tenant's sessions in the order of their ids. A finished session is listed while this
        gateway keeps receipts of its calls (for an hour, at most 4096 calls).
        A deleted session is not listed."""
        after = query_id(request.scope["query_string"], "after")
        found = await table.programs(tenant, limit + 1, after)
        mine = receipts.of(tenant, time())
        names = known_by(mine)
        sessions: dict[str, dict[str, Any]] = {}
        for number, program in enumerate(found):
            if number % _A_TURN == 0:
                await turns.take(tenant, _TURN_BYTES)
            name = program.key.program
            sessions[name] = session_json(regrouped(program, mine), names.get(name))
        await turns.take(tenant, _TURN_BYTES)
        # Up to the last id found, the table has returned every session that is alive.
        last = found[-1].key.program if len(found) > limit else None
        gone = finished(mine, sessions).items()
        sessions |= {
            name: session
            for name, session in gone
            if name > after and (last is None or name < last)
        }
        listed = sorted(sessions)
        return await page(turns, tenant, listed, limit, lambda name: sessions[name])

    def shown(key: ProgramKey, program: Program | None) -> dict[str, Any]:
        """Return a program's row or, if it has none, its receipts as a session. Raises ApiError."""
        if program is not None:
            mine = receipts.of(key.tenant, time())
            return session_json(regrouped(program, mine), known_by(mine).get(key.program))
        session = finished(receipts.story(key, time()), ()).get(key.program)
        if session is None:
            raise errors.of("session_not_found", name=key.program)
        return session

    async def end(key: ProgramKey) -> dict[str, Any]:
        """End a program, or remove a finished one from the list. Raises ApiError."""
        session = shown(key, await lifecycle.end(key, time()))
        receipts.unlist(key, time())
        return session

    @api.get("/v1/sessions/{session_id}", summary="Get a session")
    async def get_session(session_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """The session's row of the process table. The figures of a finished session come from the
        receipts of its calls. The answer lists the hints in force with the times of their ends.
        """
        key = program_key(tenant, path_id(session_id))
        return shown(key, await table.get(key))

    @api.patch(
        "/v1/sessions/{session_id}",
        summary="Change a session's budget",
        openapi_extra=described(SessionChange, required=True),
    )
    async def change_session(
        request: Request, session_id: str, tenant: str = Depends(auth.tenant)
    ) -> dict[str, Any]:
        """Set, raise or remove limits of the session with all its sub-agents. Members that the body
        does not name stay. Calls that the budget holds go on once it is raised."""
        key = program_key(tenant, path_id(session_id))
        return shown(key, await changed(request, key, table, settings))

    @api.delete("/v1/sessions/{session_id}", summary="End a session")
    async def delete_session(session_id: str, tenant: str = Depends(auth.tenant)) -> dict[str, Any]:
        """End the session and return its totals. Calls in flight run to their end."""
        session = await end(program_key(tenant, path_id(session_id)))
        return session | {"object": "session.deleted", "deleted": True}

    @api.post(
        "/finish_session",
        summary="End a session (vllm-router's name for it)",
    )
    async def finish_session(
        request: Request,
        session_id: Annotated[str, Query(description="the session to end")],
        tenant: str = Depends(auth.tenant),
    ) -> dict[str, Any]:
        """The same as `DELETE /v1/sessions/{session_id}`, for clients of vllm-router."""
        session_id = query_id(request.scope["query_string"], "session_id")
        await end(program_key(tenant, session_id))
        return {"session_id": session_id, "finished": True}

    return api


def path_id(segment: str) -> str:
    """Return the id in a percent-encoded path segment. Raises IdentityError."""
    return from_bytes(unquote_to_bytes(segment), b"session_id")


def query_id(query: bytes, name: str) -> str:
    """Return the last id of that name in a query string, or "". Raises IdentityError.

    It reads the bytes, so that two ids that are not UTF-8 stay different.
    """
    # Latin-1 represents bytes here.
    values = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1"))
    return from_bytes(values.get(name, "").encode("latin-1"), name.encode())


def program_key(tenant: str, session_id: str, name: str = "session_id") -> ProgramKey:
    """Return the program of an id. Raises IdentityError if the id is empty."""
    if not session_id:
        raise IdentityError("bad_id", name, "must not be empty")
    return ProgramKey(tenant, session_id)
