"""Tool dispatch: reports complete tool calls while the answer still streams."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import orjson

from weft_gateway.calls.call import Call, Tap
from weft_gateway.calls.observers import CallObserver
from weft_gateway.model import Outcome
from weft_gateway.overlap.dispatch import ToolDispatch, as_json
from weft_gateway.overlap.tool_calls import ToolCall
from weft_gateway.overlap.whole import calls_of
from weft_gateway.telemetry.listeners import Listeners


class ToolDispatchObserver(CallObserver):
    """Reports to the client, if it requested that, and to the listeners of the program."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    def streams(self, call: Call) -> Tap | None:
        """Return the tap of a stream whose tool calls are requested."""
        if not (call.tool_dispatch or call.key in self._listeners):
            return None
        # Without tools, any text and any name could be a call.
        names = tool_names(call.body) or None
        if names is None and not call.tool_dispatch:
            return None
        dispatch = ToolDispatch(insert=call.tool_dispatch, names=names)
        dispatched: list[tuple[str, float]] = []
        call.dispatched = dispatched

        def tap(data: bytes) -> bytes:
            passed, complete = dispatch.feed(data)
            for tool in complete:
                dispatched.append((tool.name, perf_counter()))
                self._publish(call, tool)
            return passed

        return tap

    def closed(self, call: Call) -> None:
        """Record the time between each tool's dispatch and the answer's end. The saving is at least
        the shortest one, because the last tool to finish is unknown. The tools of a non-streamed
        answer are reported now.
        """
        if call.dispatched and call.outcome is not Outcome.ABORTED:
            now = perf_counter()
            call.tools = tuple([(name, now - at) for name, at in call.dispatched])
            call.save("dispatch", min(seconds for _, seconds in call.tools))
        elif call.body_out is not None and call.key in self._listeners:
            names = tool_names(call.body) or None
            if names is None and not call.tool_dispatch:
                return
            try:
                answer = orjson.loads(call.body_out)
            except orjson.JSONDecodeError:
                return
            for tool in calls_of(answer, names):
                self._publish(call, tool)

    def _publish(self, call: Call, tool: ToolCall) -> None:
        about = {"request_id": call.request_id.decode(), **as_json(tool)}
        self._listeners.publish(call.key, about)


def tool_names(body: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the tools that the model may call."""
    names = set()
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            function = tool.get("function")
            name = function.get("name") if isinstance(function, Mapping) else tool.get("name")
            if isinstance(name, str):
                names.add(name)
    return frozenset(names)
