"""What a call's answer is read for on its way: tool calls that can be dispatched, and the next turn
that they lead to. A call that nobody watches has no watch, and its bytes are not looked at. What
lineage remembers of an answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from time import perf_counter, time
from typing import Any

import orjson
from weft_engine.wire import CallReport

from weft_gateway.api.prefills import PrefillDesk
from weft_gateway.api.request import Request
from weft_gateway.api.services import Services
from weft_gateway.model import ProgramKey
from weft_gateway.overlap.answers import AnswerTape, parse_answer
from weft_gateway.overlap.dispatch import ToolDispatch, as_json
from weft_gateway.overlap.tool_calls import ToolCall
from weft_gateway.overlap.whole import calls_of
from weft_gateway.programs.table import TableUnavailable

log = logging.getLogger(__name__)


class Watch:
    """One answer's. tools: those that were told, by name, and when on the performance counter."""

    __slots__ = (
        "_ahead",
        "_call",
        "_desk",
        "_dispatch",
        "_key",
        "_request",
        "_s",
        "_tape",
        "tools",
    )

    def __init__(
        self, services: Services, desk: PrefillDesk, key: ProgramKey, request: Request
    ) -> None:
        self._s = services
        self._desk = desk
        self._key = key
        self._request = request
        self._dispatch: ToolDispatch | None = None
        self._ahead = foresees(services, request)
        self._tape = AnswerTape() if self._ahead else None
        self.tools: list[tuple[str, float]] = []
        if request.dispatch or key in services.listeners:
            # Without tools a call may be text, and names any.
            names = _tool_names(request.body) or None
            if names or request.dispatch:
                self._dispatch = ToolDispatch(
                    insert=request.dispatch, names=names, loads=orjson.loads
                )

    @staticmethod
    def wanted(services: Services, key: ProgramKey, request: Request) -> bool:
        """Whether anybody watches the answer."""
        return request.dispatch or key in services.listeners or foresees(services, request)

    def feed(self, data: bytes) -> bytes:
        """Take bytes of a stream; return those for the client."""
        if self._tape is not None:
            self._tape.feed(data)
        if self._dispatch is None:
            return data
        passed, calls = self._dispatch.feed(data)
        for call in calls:
            self.tools.append((call.name, perf_counter()))
            _tell(self._s, self._key, self._request, call)
        return passed

    async def closed(self, whole: bytes | None, report: CallReport | None) -> None:
        """The call is closed. Learn from it what a next turn begins with, and see to that of this
        one where it called tools."""
        if not self._ahead or report is None:
            return
        s, request, thread = self._s, self._request, self._request.identity.thread
        cached = report.cached_tokens if request.prefill is None else None
        s.ahead.came(self._key, thread, request.body, cached)
        message = self._message(whole)
        if not message.get("tool_calls"):
            return
        ahead = s.ahead.called(
            self._key,
            thread,
            request.body,
            message,
            report.prompt_tokens + report.output_tokens,
            wanted=bool(request.hints.prefill_next),
        )
        if ahead is not None:
            body = {**request.body, **ahead}
            s.ledger.spawn(self._desk.foresee(request.caller, self._key, body, request.model))

    def _message(self, whole: bytes | None) -> dict[str, Any]:
        """The answer's message, {} where there is not just one."""
        body: Any = {}
        if whole is None:
            body = self._tape.body() if self._tape is not None else {}
        else:
            with contextlib.suppress(orjson.JSONDecodeError):
                body = orjson.loads(whole)
        choices = body.get("choices") if isinstance(body, dict) else None
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            return {}
        message = choices[0].get("message")
        return message if isinstance(message, dict) else {}

    def ahead_s(self) -> tuple[tuple[str, float], ...]:
        """How long before now, the answer's end, each tool was told, seconds."""
        now = perf_counter()
        return tuple((name, now - at) for name, at in self.tools)


def tell_whole(services: Services, key: ProgramKey, request: Request, answer: bytes) -> None:
    """An answer came at once: whoever listens is told all its calls, as they are at its end."""
    names = _tool_names(request.body) or None
    if names is None and not request.dispatch:
        return
    try:
        parsed = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return
    for call in calls_of(parsed, names=names, loads=orjson.loads):
        _tell(services, key, request, call)


def _tell(services: Services, key: ProgramKey, request: Request, call: ToolCall) -> None:
    about = {"request_id": request.request_id.decode(), **as_json(call)}
    services.listeners.tell(key, about)


def foresees(services: Services, request: Request) -> bool:
    """Whether the call may be a turn between tools, whose next one is worth to be foreseen."""
    return (
        services.settings.auto_prefill
        and request.endpoint.name == "chat"
        and bool(request.body.get("tools"))
    )


async def remember(services: Services, request: Request, raw: bytes | None, stream: bool) -> None:
    """Lineage learns what came of the call. raw: the answer's body, None where there is none: who
    asks the same then tries again."""
    asked, request.asked = request.asked, None
    lineage = services.lineage
    if asked is None or lineage is None:
        return
    try:
        if raw is None:
            await lineage.failed(asked, time())
        else:
            await lineage.answered(asked, parse_answer(raw, stream), time())
    except TableUnavailable:
        log.debug("an answer could not be remembered", exc_info=True)


def _tool_names(body: Mapping[str, Any]) -> frozenset[str]:
    """The tools that the model may call."""
    names = set()
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            function = tool.get("function")
            name = function.get("name") if isinstance(function, Mapping) else tool.get("name")
            if isinstance(name, str):
                names.add(name)
    return frozenset(names)
