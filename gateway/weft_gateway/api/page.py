"""The live view: the page at /ui, and /v1/top for other programs. Both have the same rows."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from time import time
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Query, Request, Response
from jinja2 import Environment, PackageLoader
from pydantic import BaseModel, ConfigDict

from weft_gateway.api import web
from weft_gateway.api.auth import Authenticator, Sight
from weft_gateway.api.board import Board, Json, Viewer
from weft_gateway.api.body import described, read_model
from weft_gateway.api.stories import EventStream
from weft_gateway.calls.features.live import Seen
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.config import Settings
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.errors import ApiError, invalid_member
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry import view
from weft_gateway.telemetry.receipts import Receipts
from weft_gateway.telemetry.view import Event, Row

_SIGNED_IN_S: Final = 12 * 3600.0
_MOST_SIGNED_IN: Final = 4096
# A raised program's blocks stay longer than those of others for this time, seconds.
_RAISED_S: Final = 3600.0
_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_ASSETS: Final = {
    "app.js": "text/javascript",
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
}

Text = Annotated[
    str, Query(max_length=256, description="a part of a session, key, state, model or replica")
]
Sort = Annotated[str, Query(description="a column; with a minus, the largest first")]
Offset = Annotated[int, Query(ge=0, le=100_000, description="rows before the page")]
Limit = Annotated[int, Query(ge=1, le=view.MOST_ROWS, description="rows of the page")]
Changes = Annotated[bool, Query(description="answer with server-sent events of changes")]


class Action(BaseModel):
    """What to do with a program."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Literal["stop", "raise"]


class OnPage(Action):
    """An action of the page."""

    row: str


class SignIn(BaseModel):
    """The key of someone who signs in."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str


class Html:
    """Parts of the page."""

    def __init__(self) -> None:
        loader = PackageLoader("weft_gateway.api", "ui")
        self.environment = env = Environment(
            loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
        )
        env.filters |= {
            "short": view.short,
            "percent": view.percent,
            "seconds": view.seconds,
            "about": view.about,
        }
        parts: Any = env.get_template("parts.html").module
        self._row, self._engines, self._events = parts.row, parts.engines, parts.events
        self._story = parts.story

    def row(self, row: Row) -> str:
        """A program."""
        return str(self._row(row))

    def engines(self, rows: list[Row]) -> str:
        """All engines."""
        return str(self._engines(rows))

    def events(self, events: list[Event]) -> str:
        """Events, the newest first."""
        return str(self._events([event.to_json() for event in reversed(events)]))

    def story(self, row: Row, line: Row) -> str:
        """The timeline of a program."""
        return str(self._story(row, line, view.spans(line, 1000.0)))

    def page(self, **values: Any) -> str:
        """The whole page."""
        return self.environment.get_template("page.html").render(**values)


class Visitors:
    """Who is signed in. Tokens are known to browsers only: this process has their digests."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[Sight, float]] = OrderedDict()

    def enter(self, sight: Sight, now_s: float) -> str:
        """Sign someone in. Returns the token."""
        token = secrets.token_urlsafe(32)
        self._known[_digest(token)] = sight, now_s + _SIGNED_IN_S
        if len(self._known) > _MOST_SIGNED_IN:
            self._known.popitem(last=False)
        return token

    def find(self, token: str, now_s: float) -> Sight | None:
        """Return what the owner of a token may see."""
        sight, until_s = self._known.get(_digest(token), (None, 0.0))
        return sight if now_s < until_s else None

    def leave(self, token: str) -> None:
        """Sign someone out."""
        self._known.pop(_digest(token), None)


def router(
    auth: Authenticator,
    board: Board,
    table: ProcessTable,
    lifecycle: Lifecycle,
    advisor: KvAdvisor,
    receipts: Receipts,
    settings: Settings,
) -> APIRouter:
    """Create the routes of the live view."""
    api, live, html, json, visitors = APIRouter(), board.live, Html(), Json(), Visitors()
    # Several gateways of one host have different ports, and share its cookies.
    cookie = f"weft_{settings.port}"

    def by_header(request: Request) -> Sight:
        headers = dict(request.headers.raw)
        sight = auth.sight(headers, request.client.host if request.client else "")
        if sight.admin and not settings.admin_key:
            try:
                web.check_admin("GET", headers, settings)
            except ApiError:
                # A page of another origin may have sent it.
                return Sight(auth.caller({}).tenant, False)
        return sight

    def by_cookie(request: Request) -> Sight | None:
        """Return what a browser may see, None before it is signed in."""
        sight = visitors.find(request.cookies.get(cookie, ""), time())
        try:
            if sight is None:
                return by_header(request)
            if sight.tenant is not None:
                auth.caller_of(sight.tenant)
        except ApiError:
            return None
        return sight

    def signed_in(request: Request) -> Sight:
        sight = by_cookie(request)
        if sight is None:
            raise ApiError(401, "sign_in_required", "Sign in at /ui.")
        return sight

    def query(sight: Sight, q: str, sort: str, offset: int, limit: int) -> view.Query:
        if sort.removeprefix("-") not in view.SORTS:
            raise invalid_member(("sort",), f"must be one of {', '.join(view.SORTS)}")
        return view.Query(sight.tenant, q, sort, offset, limit)

    def seen_by(sight: Sight, row: str) -> Seen:
        seen = live.programs.get(row)
        if seen is None or sight.tenant not in (None, seen.key.tenant):
            raise ApiError(404, "program_not_found", "No such program is known here.")
        return seen

    async def story(sight: Sight, row: str) -> tuple[Row, Row]:
        seen = seen_by(sight, row)
        await board.ready()
        now_s = time()
        line = view.timeline(receipts.story(seen.key, now_s), now_s)
        cell = board.cells.get(row)
        return ({"row": row, "session": seen.key.program} if cell is None else cell.row), line

    async def act(sight: Sight, row: str, action: str) -> dict[str, Any]:
        seen = seen_by(sight, row)
        if action == "stop":
            return {"row": row, "stopped": True, "aborted": await live.stop(seen, lifecycle)}
        program = table.peek(seen.key)
        names = (seen.replica,) if program is None else program.replicas
        fates = await advisor.advise(seen.key, names, "priority", priority=1, ttl_s=_RAISED_S)
        live.happened("raised", seen.key)
        return {"row": row, "raised": fates}

    def streamed(
        viewer: Viewer, request: Request, check: Callable[[Request], Sight | None]
    ) -> EventStream:
        board.check_room(viewer.query.tenant)

        def allowed() -> bool:
            try:
                return check(request) is not None
            except ApiError:
                return False

        return EventStream(board.stream(viewer, allowed), headers=_HEADERS)

    @api.get("/v1/top", tags=["live view"], summary="Show programs and engines")
    async def get_top(
        request: Request,
        q: Text = "",
        sort: Sort = "state",
        offset: Offset = 0,
        limit: Limit = view.PAGE,
        stream: Changes = False,
    ) -> Response:
        """The programs with calls through this gateway: one page of rows by an opaque name, their
        order, counts by state, and events. The admin key shows all programs and the engines,
        another key its own programs. With `stream`, the first event has the whole page, and
        each later one what has changed: rows replace those of the same name."""
        sight = by_header(request)
        viewer = Viewer(query(sight, q, sort, offset, limit), sight.admin, json)
        if stream:
            return streamed(viewer, request, by_header)
        await board.ready()
        whole = {"object": "top", "rows": {}, "order": [], "engines": [], "events": []}
        return Response(orjson.dumps(whole | viewer.changes(board)), media_type="application/json")

    @api.get("/v1/top/{row}", tags=["live view"], summary="Show a program as a timeline")
    async def get_timeline(request: Request, row: str) -> dict[str, Any]:
        """The parts of each call in seconds, by thread: held, queued, prefill, decode. `row`: the
        opaque name of the program."""
        program, line = await story(by_header(request), row)
        return {"object": "timeline", "program": program, **line}

    @api.post(
        "/v1/top/{row}",
        tags=["live view"],
        summary="Stop or raise a program",
        openapi_extra=described(Action, required=True),
    )
    async def act_on_program(request: Request, row: str) -> dict[str, Any]:
        """`stop` ends the program and aborts its calls through this gateway; its further calls get
        403 `program_stopped` for five minutes. `raise` keeps its KV blocks longer than those of
        others for an hour."""
        sight = by_header(request)
        wanted = await read_model(request, Action, settings.max_body_bytes)
        return await act(sight, row, wanted.action)

    @api.get("/ui", include_in_schema=False)
    async def get_page(request: Request) -> Response:
        sight = by_cookie(request)
        values: dict[str, Any] = {"sight": sight, "sorts": view.SORTS, "page": view.PAGE}
        if sight is not None:
            await board.ready()
            viewer = Viewer(view.Query(sight.tenant), sight.admin, html)
            found = viewer.changes(board)
            rows = found.get("rows", {})
            values |= {
                "rows": "".join(rows[name] for name in found.get("order", ())),
                "engines": found.get("engines", ""),
                "events": found.get("events", ""),
                "counts": found.get("counts", {}),
                "budgets": board.budgets,
                "cookie": cookie in request.cookies,
            }
        return Response(html.page(**values), media_type="text/html", headers=_HEADERS)

    @api.get("/ui/", include_in_schema=False)
    async def leave_folder() -> Response:
        return Response(status_code=307, headers={"location": "../ui"})

    @api.get("/ui/events", include_in_schema=False)
    async def stream_page(
        request: Request,
        q: Text = "",
        sort: Sort = "state",
        offset: Offset = 0,
        limit: Limit = view.PAGE,
    ) -> Response:
        sight = signed_in(request)
        viewer = Viewer(query(sight, q, sort, offset, limit), sight.admin, html)
        return streamed(viewer, request, by_cookie)

    @api.get("/ui/story/{row}", include_in_schema=False)
    async def get_story_part(request: Request, row: str) -> Response:
        program, line = await story(signed_in(request), row)
        return Response(html.story(program, line), media_type="text/html", headers=_HEADERS)

    @api.post("/ui/act", include_in_schema=False)
    async def act_on_page(request: Request) -> dict[str, Any]:
        _check_json(request)
        sight = signed_in(request)
        wanted = await read_model(request, OnPage, settings.max_body_bytes)
        return await act(sight, wanted.row, wanted.action)

    @api.post("/ui/sign-in", include_in_schema=False)
    async def sign_in(request: Request, response: Response) -> dict[str, Any]:
        _check_json(request)
        given = await read_model(request, SignIn, settings.max_body_bytes)
        key = given.key.encode("utf-8", "surrogatepass").strip()
        sight = auth.sight({b"authorization": b"Bearer " + key} if key else {}, "")
        if not (sight.admin or settings.needs_keys):
            # The page is open: only the admin key shows more.
            raise ApiError(401, "invalid_admin_key", "Incorrect admin key provided.")
        token, secure = visitors.enter(sight, time()), _is_secure(request)
        # Without a path it is sent to the folder of this URL, behind any prefix.
        response.headers["set-cookie"] = (
            f"{cookie}={token}; HttpOnly; SameSite=Strict; Max-Age={_SIGNED_IN_S:.0f}"
            + ("; Secure" if secure else "")
        )
        return {"signed_in": True}

    @api.post("/ui/sign-out", include_in_schema=False)
    async def sign_out(request: Request, response: Response) -> dict[str, Any]:
        _check_json(request)
        visitors.leave(request.cookies.get(cookie, ""))
        response.headers["set-cookie"] = f"{cookie}=; HttpOnly; SameSite=Strict; Max-Age=0"
        return {"signed_in": False}

    @api.get("/ui/{asset}", include_in_schema=False)
    async def get_asset(asset: str) -> Response:
        if asset not in _ASSETS:
            raise ApiError(404, "unknown_url", "No such part of the page.")
        loader = html.environment.loader
        assert loader is not None
        source = loader.get_source(html.environment, asset)[0]
        headers = _HEADERS | {"cache-control": "no-cache"}
        return Response(source, media_type=_ASSETS[asset], headers=headers)

    return api


def _check_json(request: Request) -> None:
    """Raise ApiError unless the body is declared as JSON: a page of another origin would have to
    ask before it sends such a request, and is refused.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "json_required", "The content type must be application/json.")


def _is_secure(request: Request) -> bool:
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
