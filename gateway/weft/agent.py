"""An agent's loop in which tools, decoding and prefill overlap (Sutradhara 4.1, 4.2; Figure 6).

A tool starts when the closing brace of its call has been decoded, while the model still writes the
next one. When the answer is complete and tools still run, the part of the next prompt that does not
depend on them is prefilled; the next call then extends it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from weft_gateway.overlap.dispatch import HEADER
from weft_gateway.overlap.tool_calls import ToolCall

from weft import tools as tools_module
from weft.hints import AsyncHints, Prefill
from weft.message import Message
from weft.stream import ToolCalls
from weft.tools import Tool, ToolRun

if TYPE_CHECKING:
    import openai

# Seconds that a call waits for the handle of its prefill where tools were faster than the server's
# answer: a round trip is worth it, a server that hangs is not.
GRACE_S = 0.1
# As `weft_gateway.overlap.dispatch` has it, in bytes.
DISPATCH_HEADER: Final = HEADER.decode()

_NO_HINTS: Final = (404, 405, 501)
# Fields beside messages and tools that decide how an engine writes out the prompt.
_PROMPT: Final = ("chat_template", "chat_template_kwargs", "cache_salt")


@dataclass(slots=True)
class Run:
    """What came of a loop.

    messages: the whole conversation, the last answer included. answer: its text. turns: calls of
    the model. finished: the last answer was whole and called no tool. tool_runs: all tools, in the
    order in which they were called. extended: calls that found their prompt prefilled.
    """

    messages: list[dict[str, Any]]
    answer: str = ""
    turns: int = 0
    finished: bool = False
    tool_runs: list[ToolRun] = field(default_factory=list)
    extended: int = 0


async def run(
    client: openai.AsyncOpenAI,
    session_id: str,
    model: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool],
    *,
    max_turns: int = 8,
    tool_choice: Any = "auto",
    prefill: bool = True,
    prefill_ttl_s: float | None = None,
    on_call: Callable[[ToolCall], object] | None = None,
    on_chunk: Callable[[Any], object] | None = None,
    **options: Any,
) -> Run:
    """Call the model, run the tools it calls, and again, until it answers without calling any.

    max_turns: calls of the model at most; in the last one it may call no tool, so that there is an
    answer. tool_choice: for the first turn; afterwards the model is free, or a forced tool would be
    called forever. prefill: use hints, where the server has them. on_call, on_chunk: told of each
    complete call and each chunk as it comes. options: further fields of the chat completion. Raises
    what the client raises when a call of the model fails; tools that fail are told to the model.
    """
    if max_turns < 1:
        raise ValueError(f"max_turns must be at least 1, got {max_turns}")
    if not {"n", "stream", "messages", "tools"}.isdisjoint(options):
        raise ValueError("n, stream, messages and tools are the loop's own")
    hints = _Ahead(AsyncHints(client, session_id), prefill_ttl_s) if prefill else None
    loop = _Loop(client, hints, {tool.name: tool for tool in tools}, on_call, on_chunk)
    body = {"model": model, "stream": True, **options}
    if tools:
        body["tools"] = [tool.as_json() for tool in tools]
    result = Run([dict(message) for message in messages])
    try:
        for turn in range(1, max_turns + 1):
            if tools:
                body["tool_choice"] = tool_choice if turn == 1 else "auto"
                if turn == max_turns:
                    body["tool_choice"] = "none"
            more = await loop.turn(body, result)
            if not more:
                break
    finally:
        if hints is not None:
            await hints.discard()
    return result


class _Loop:
    """What stays the same from turn to turn."""

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        hints: _Ahead | None,
        tools: dict[str, Tool],
        on_call: Callable[[ToolCall], object] | None,
        on_chunk: Callable[[Any], object] | None,
    ) -> None:
        self._client = client
        self._hints = hints
        self._tools = tools
        self._on_call = on_call
        self._on_chunk = on_chunk

    async def turn(self, body: dict[str, Any], result: Run) -> bool:
        """One call of the model and its tools. Whether there has to be another."""
        # So that the gateway's receipt says by how much the tools were ahead.
        headers = {DISPATCH_HEADER: "1", **(body.get("extra_headers") or {})}
        body = body | {"messages": result.messages, "extra_headers": headers}
        result.turns += 1
        stream = await self._open(body, result)
        running: dict[int, tuple[float, asyncio.Task[ToolRun]]] = {}
        try:
            async with stream:
                calls = ToolCalls(stream, self._on_call, on_chunk=self._on_chunk)
                async for call in calls:
                    if call.choice == 0:
                        work = tools_module.run(self._tools.get(call.name), call)
                        running[call.index] = (perf_counter(), asyncio.create_task(work))
            ended = perf_counter()
            message = calls.message
            result.messages.append(message.as_json())
            result.answer = message.content
            if not message.calls:
                result.finished = message.finish_reason == "stop"
                return False
            tasks = [task for _, task in running.values()]
            if self._hints is not None and not all(task.done() for task in tasks):
                self._hints.submit(body | {"messages": list(result.messages)})
            await asyncio.gather(*tasks)
        finally:
            await _cancel([task for _, task in running.values() if not task.done()])
        runs = {
            index: replace(task.result(), head_start_s=max(0.0, ended - begun))
            for index, (begun, task) in running.items()
        }
        result.tool_runs += runs.values()
        for index in message.incomplete:
            runs[index] = _not_run(message, index)
            result.tool_runs.append(runs[index])
        result.messages += [_tool_message(message, index, runs[index]) for index in sorted(runs)]
        return True

    async def _open(self, body: dict[str, Any], result: Run) -> Any:
        if self._hints is not None:
            stream = await self._hints.extend(body)
            if stream is not None:
                result.extended += 1
                return stream
        return await self._client.chat.completions.create(**body)


class _Ahead:
    """The prefill of the next prompt: submitted while tools run, extended by the call, or dropped.
    Whatever goes wrong here, the call is made without it."""

    def __init__(self, hints: AsyncHints, ttl_s: float | None) -> None:
        self._hints = hints
        self._ttl_s = ttl_s
        self._supported = True
        self._asked: asyncio.Task[Prefill | None] | None = None

    def submit(self, body: Mapping[str, Any]) -> None:
        """Ask for the prefill of a body's messages."""
        if self._supported:
            self._asked = asyncio.create_task(self._submit(body))

    async def _submit(self, body: Mapping[str, Any]) -> Prefill | None:
        import openai

        fields = {**body, **(body.get("extra_body") or {})}
        prompt = {name: fields[name] for name in _PROMPT if name in fields}
        try:
            return await self._hints.submit_partial_prefill(
                body["model"], body["messages"], body.get("tools"), self._ttl_s, **prompt
            )
        except openai.APIStatusError as error:
            self._supported = error.status_code not in _NO_HINTS
        except (openai.APIError, ValueError):
            pass
        return None

    async def extend(self, body: Mapping[str, Any]) -> Any:
        """The call as an extension of what was prefilled; None where there is nothing to extend."""
        import openai

        prefill = await self._taken()
        if prefill is None:
            return None
        try:
            return await self._hints.extend_prefill(prefill, **body)
        except openai.APIError:
            return None  # Expired, or another prefix, or a fault that the plain call meets too.

    async def discard(self) -> None:
        """The call will not come: an answer ended the loop, or an error did."""
        import openai

        prefill = await self._taken()
        if prefill is not None:
            with contextlib.suppress(openai.APIError):
                await self._hints.discard_prefill(prefill)

    async def _taken(self) -> Prefill | None:
        """The handle, once."""
        asked, self._asked = self._asked, None
        if asked is None:
            return None
        done, _ = await asyncio.wait([asked], timeout=GRACE_S)
        if not done:
            await _cancel([asked])
            return None
        return asked.result()


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _not_run(message: Message, index: int) -> ToolRun:
    call = message.calls[index]
    return tools_module.failure(
        ToolCall(index, call["id"], call.get("name", ""), "{}"), "the arguments are not valid JSON"
    )


def _tool_message(message: Message, index: int, ran: ToolRun) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": message.calls[index]["id"], "content": ran.output}
