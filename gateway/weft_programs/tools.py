"""Tools that a model can call, and their execution."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from weft_programs.stream import ToolCall


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model can call.

    function: a plain function, which runs in a thread, or a coroutine function. The model gets a
    string result unchanged and any other result as JSON. parameters: JSON Schema of the keyword
    arguments. timeout_s: after it, the model gets an error. A thread cannot be stopped; its result
    is dropped.
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
    """The execution of one tool call. output: the text for the model. failed: the output is an
    error. head_start_s: how long before the end of the answer the tool started."""

    call: ToolCall
    output: str
    failed: bool = False
    head_start_s: float = 0.0


async def run(tool: Tool | None, call: ToolCall) -> ToolRun:
    """Run a tool. An error of the tool becomes its output, so that the model can react."""
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
    """Call a function in a daemon thread. The event loop's pool limits the number of threads, and
    the program could not exit while a function in it hangs."""
    done: Future[tuple[Any, Exception | None]] = Future()

    def work() -> None:
        result, error = None, None
        try:
            result = function(**arguments)
        except Exception as raised:
            error = raised
        except BaseException as raised:  # SystemExit in a tool must not end the agent.
            error = RuntimeError(repr(raised))
        with contextlib.suppress(InvalidStateError):  # The call was cancelled.
            done.set_result((result, error))

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="tool", daemon=True).start()
    result, error = await asyncio.wrap_future(done)
    if error is not None:
        raise error
    return result


def failure(call: ToolCall, why: str) -> ToolRun:
    """The result of a call that did not run or failed."""
    return ToolRun(call, json.dumps({"error": why}, ensure_ascii=False), failed=True)
