"""The live view: the page at /ui, and /v1/top for other programs. Both have the same rows."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from time import time
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request, Response
from jinja2 import Environment, PackageLoader
from pydantic import BaseModel, ConfigDict

from weft_gateway.api.admin import seeing
from weft_gateway.api.auth import Authenticator, Sight
from weft_gateway.api.board import Board, Viewer
from weft_gateway.api.body import described, read_model
from weft_gateway.api.sessions import SessionChange, changed, session_json
from weft_gateway.api.stories import EventStream
from weft_gateway.calls.features.live import Seen
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.config import Settings
from weft_gateway.errors import ApiError, invalid_member
from weft_gateway.programs.table import ProcessTable
from weft_gateway.telemetry import view
from weft_gateway.telemetry.receipts import Receipts

_SIGNED_IN_S: Final = 12 * 3600.0
_MOST_SIGNED_IN: Final = 4096
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
Limit = Annotated[int, Query(ge=1, le=view.MOST_ROWS, description="most rows")]
Changes = Annotated[bool, Query(description="answer with server-sent events of changes")]


class SignIn(BaseModel):
    """The key of someone who signs in."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str


class Html:
    """The page and its parts."""

    def __init__(self) -> None:
        loader = PackageLoader("weft_gateway.api", "ui")
        env = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
        env.filters |= {"short": view.short, "seconds": view.seconds, "about": view.about}
        env.globals |= {"columns": view.COLUMNS, "engine_columns": view.ENGINES}
        env.globals["sorts"] = view.SORTS
        self._environment, self._loader = env, loader
        self._parts: Any = env.get_template("parts.html").module
        self.page = env.get_template("page.html")

    def part(self, name: str, *values: Any) -> str:
        """Write a part: `row`, `engines`, `events` or `story`."""
        return str(getattr(self._parts, name)(*values))

    def source(self, asset: str) -> str:
        """Return the text of a file."""
        return self._loader.get_source(self._environment, asset)[0]

    @staticmethod
    def response(text: str) -> Response:
        """Answer with a page or a part of it."""
        return Response(text, media_type="text/html", headers=_HEADERS)


def router(
    auth: Authenticator,
    board: Board,
    table: ProcessTable,
    lifecycle: Lifecycle,
    receipts: Receipts,
    settings: Settings,
) -> APIRouter:
    """Create the routes of the live view. Those below /ui know a visitor by its cookie."""
    api, live, html = APIRouter(tags=["live view"]), board.live, Html()
    # Several gateways of one host have different ports, and share its cookies.
    cookie = f"weft_{settings.port}"
    # What visitors may see, and until when, by digests of the tokens that only browsers know.
    visitors: OrderedDict[bytes, tuple[Sight, float]] = OrderedDict()

    by_header = seeing(auth, settings)

    def sight_of(request: Request) -> Sight:
        """Return what a client may see. Raises ApiError."""
        if not _on_page(request):
            return by_header(request)
        sight, until_s = visitors.get(_digest(request.cookies.get(cookie, "")), (None, 0.0))
        try:
            if sight is None or time() >= until_s:
                return by_header(request)
            if sight.tenant is not None:
                auth.caller_of(sight.tenant)
        except ApiError:
            raise ApiError(401, "sign_in_required", "Sign in at /ui.") from None
        return sight

    def allowed(request: Request) -> bool:
        try:
            return bool(sight_of(request))
        except ApiError:
            return False

    def seen_by(request: Request, row: str) -> Seen:
        sight, seen = sight_of(request), live.programs.get(row)
        if seen is None or sight.tenant not in (None, seen.key.tenant):
            raise ApiError(404, "program_not_found", "No such program is known here.")
        return seen

    @api.get("/ui/top", include_in_schema=False)
    @api.get("/v1/top", summary="Show programs and engines")
    async def get_top(
        request: Request,
        q: Text = "",
        sort: Sort = "state",
        limit: Limit = view.PAGE,
        stream: Changes = False,
    ) -> Response:
        """The programs with calls through this gateway: the first rows by an opaque name, their
        order, counts by state, and events. The admin key shows all programs and the engines,
        another key its own programs. With `stream`, the first event has everything, and each later
        one what has changed: rows replace those of the same name."""
        if sort.removeprefix("-") not in view.SORTS:
            raise invalid_member(("sort",), f"must be one of {', '.join(view.SORTS)}")
        sight = sight_of(request)
        query = view.Query(sight.tenant, q, sort, limit)
        viewer = Viewer(query, sight.admin, html.part if _on_page(request) else None)
        if stream:
            board.check_room(sight.tenant)
            events = board.stream(viewer, lambda: allowed(request))
            return EventStream(events, headers=_HEADERS)
        await board.look()
        whole = {"object": "top", "rows": {}, "order": [], "engines": [], "events": []}
        return Response(orjson.dumps(whole | viewer.changes(board)), media_type="application/json")

    @api.get("/ui/top/{row}", include_in_schema=False)
    @api.get("/v1/top/{row}", summary="Show a program as a timeline")
    async def get_timeline(request: Request, row: str) -> Response:
        """The parts of each call in seconds, by thread: held, queued, prefill, decode. `row`: the
        opaque name of the program."""
        seen = seen_by(request, row)
        await board.look()
        line = view.timeline(receipts.story(seen.key, time()), time())
        program = board.cells[row].row if row in board.cells else {"session": seen.key.program}
        if _on_page(request):
            return html.response(html.part("story", program, line, view.spans(line, 1000.0)))
        found = {"object": "timeline", "program": program, **line}
        return Response(orjson.dumps(found), media_type="application/json")

    @api.delete("/ui/top/{row}", include_in_schema=False)
    @api.delete("/v1/top/{row}", summary="Stop a program")
    async def stop_program(request: Request, row: str) -> dict[str, Any]:
        """End the program and abort its calls through this gateway. Its further calls get 403
        `program_stopped` for five minutes."""
        aborted = await live.stop(seen_by(request, row), lifecycle)
        return {"row": row, "stopped": True, "aborted": aborted}

    @api.patch("/ui/top/{row}", include_in_schema=False)
    @api.patch(
        "/v1/top/{row}",
        summary="Change a program's budget",
        openapi_extra=described(SessionChange, required=True),
    )
    async def change_program(request: Request, row: str) -> dict[str, Any]:
        """Change a budget as `PATCH /v1/sessions/{session_id}` does, for a program that the key
        may see. Returns the session.
        """
        key = seen_by(request, row).key
        program = await changed(request, key, table, settings)
        live.happened("budget changed", key)
        return session_json(program)

    @api.get("/ui", include_in_schema=False)
    async def get_page(request: Request) -> Response:
        if not allowed(request):
            return html.response(html.page.render(sight=None))
        sight = sight_of(request)
        await board.look()
        found = Viewer(view.Query(sight.tenant), sight.admin, html.part).changes(board)
        found["rows"] = "".join(found.get("rows", {}).values())
        signed_in = cookie in request.cookies
        return html.response(html.page.render(found, sight=sight, signed_in=signed_in))

    @api.get("/ui/", include_in_schema=False)
    async def leave_folder() -> Response:
        return Response(status_code=307, headers={"location": "../ui"})

    @api.post("/ui/sign-in", include_in_schema=False)
    async def sign_in(request: Request, response: Response) -> dict[str, Any]:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            # A page of another origin has to ask before it sends JSON, and is refused.
            raise ApiError(415, "json_required", "The content type must be application/json.")
        given = await read_model(request, SignIn, settings.max_body_bytes)
        key = given.key.encode("utf-8", "surrogatepass").strip()
        sight = auth.sight({b"authorization": b"Bearer " + key} if key else {}, "")
        if not (sight.admin or settings.needs_keys):
            # The page is open: only the admin key shows more.
            raise ApiError(401, "invalid_admin_key", "Incorrect admin key provided.")
        token = secrets.token_urlsafe(32)
        visitors[_digest(token)] = sight, time() + _SIGNED_IN_S
        if len(visitors) > _MOST_SIGNED_IN:
            visitors.popitem(last=False)
        secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
        # Without a path it is sent to the folder of this URL, behind any prefix.
        response.headers["set-cookie"] = (
            f"{cookie}={token}; HttpOnly; SameSite=Strict; Max-Age={_SIGNED_IN_S:.0f}"
            + ("; Secure" if secure else "")
        )
        return {"signed_in": True}

    @api.delete("/ui/sign-in", include_in_schema=False)
    async def sign_out(request: Request, response: Response) -> dict[str, Any]:
        visitors.pop(_digest(request.cookies.get(cookie, "")), None)
        response.headers["set-cookie"] = f"{cookie}=; HttpOnly; SameSite=Strict; Max-Age=0"
        return {"signed_in": False}

    @api.get("/ui/{asset}", include_in_schema=False)
    async def get_asset(asset: str) -> Response:
        if asset not in _ASSETS:
            raise ApiError(404, "unknown_url", "No such part of the page.")
        headers = _HEADERS | {"cache-control": "no-cache"}
        return Response(html.source(asset), media_type=_ASSETS[asset], headers=headers)

    return api


def _on_page(request: Request) -> bool:
    return str(request.scope["path"]).startswith("/ui")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
