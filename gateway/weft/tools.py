"""Tools that a model may call, and one run of one of them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft_gateway.overlap.tool_calls import ToolCall


@dataclass(frozen=True, slots=True)
class Tool:
    """A function and how a model is told of it.

    parameters: JSON Schema of its keyword arguments. function: plain, run in a thread, or a
    coroutine function. Its result is told to the model: text as it is, all else as JSON.
    timeout_s: after it the model is told that the tool took too long; a thread cannot be stopped,
    and its result is dropped.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    timeout_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The tool in a request's `tools`."""
        function = {"name": self.name, "parameters": dict(self.parameters)}
        if self.description:
            function["description"] = self.description
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What became of a call. output: the text for the model. failed: the output tells why.
    head_start_s: how long before the end of the answer the tool was started."""

    call: ToolCall
    output: str
    failed: bool = False
    head_start_s: float = 0.0


async def run(tool: Tool | None, call: ToolCall) -> ToolRun:
    """Run a tool. What goes wrong in it is an output too: the model can try something else."""
    if tool is None:
        return failure(call, f"there is no tool {call.name!r}")
    try:
        arguments = json.loads(call.arguments)
        if not isinstance(arguments, dict):
            return failure(call, "arguments must be a JSON object")
        async with asyncio.timeout(tool.timeout_s):
            if inspect.iscoroutinefunction(tool.function):
                result = tool.function(**arguments)
            else:
                result = await _in_thread(tool.function, arguments)
            if inspect.isawaitable(result):
                result = await result
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    except TimeoutError:
        return failure(call, f"{call.name} took too long")
    except Exception as error:
        return failure(call, f"{type(error).__name__}: {error}")
    return ToolRun(call, text)


async def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function in a thread of its own. The loop's pool is too narrow for a wide fan-out, and
    the program could not end before a function in it that hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, Exception | None]] = loop.create_future()

    def finish(result: Any, error: Exception | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def work() -> None:
        result, error = None, None
        try:
            result = function(**arguments)
        except Exception as raised:
            error = raised
        except BaseException as raised:  # A tool that exits does not end its agent.
            error = RuntimeError(repr(raised))
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            loop.call_soon_threadsafe(finish, result, error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="tool", daemon=True).start()
    result, error = await done
    if error is not None:
        raise error
    return result


def failure(call: ToolCall, why: str) -> ToolRun:
    """A call that came to nothing."""
    return ToolRun(call, json.dumps({"error": why}, ensure_ascii=False), failed=True)
