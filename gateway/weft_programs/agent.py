"""An agent loop that overlaps tools, decoding and prefill (Sutradhara 4.1, 4.2; Figure 6).

A tool starts when its call is complete, while the model still writes the next call. If tools still
run when the answer ends, the server prefills the part of the next prompt that does not depend on
them, and the next call extends this prefill.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from weft_programs import tools as tools_module
from weft_programs.hints import AsyncHints, Json, Prefill
from weft_programs.message import Message
from weft_programs.stream import ToolCall, ToolCalls
from weft_programs.tools import Tool, ToolRun

if TYPE_CHECKING:
    import openai

# How long a call waits for the handle of its prefill if the tools end before the server answers.
GRACE_S = 0.1
DISPATCH_HEADER: Final = "x-weft-tool-dispatch"

_NO_HINTS: Final = (404, 405, 501)
# Members that change the prompt, beside messages and tools.
_PROMPT: Final = ("chat_template", "chat_template_kwargs", "cache_salt")


@dataclass(slots=True)
class Run:
    """The result of a loop.

    messages: the whole conversation with the last answer. answer: the text of the last answer.
    turns: number of model calls. finished: the last answer is complete and calls no tool.
    tool_runs: all tool calls, in order. extended: number of calls that extended a prefill.
    """

    messages: list[dict[str, Any]]
    answer: str = ""
    turns: int = 0
    finished: bool = False
    tool_runs: list[ToolRun] = field(default_factory=list)
    extended: int = 0


class Loop:
    """An agent loop; see Session.run_tools."""

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        tools: Sequence[Tool],
        prefills: NextPrefill | None,
        on_call: Callable[[ToolCall], object] | None,
        on_chunk: Callable[[Any], object] | None,
    ) -> None:
        self._client = client
        self._prefills = prefills
        self._tools = {tool.name: tool for tool in tools}
        self._on_call = on_call
        self._on_chunk = on_chunk

    async def run(
        self, body: dict[str, Any], messages: Sequence[Json], tool_choice: Any, max_turns: int
    ) -> Run:
        """Make the calls and run the tools. body: the members of every call."""
        body["stream"] = True
        if self._tools:
            body["tools"] = [tool.as_json() for tool in self._tools.values()]
        result = Run([dict(message) for message in messages])
        try:
            for turn in range(1, max_turns + 1):
                if self._tools:
                    body["tool_choice"] = tool_choice if turn == 1 else "auto"
                    if turn == max_turns:
                        body["tool_choice"] = "none"
                if not await self._turn(body, result):
                    break
        finally:
            if self._prefills is not None:
                await self._prefills.discard()
        return result

    async def _turn(self, body: dict[str, Any], result: Run) -> bool:
        """Make one model call and run its tools. Returns whether another turn follows."""
        # Lets the gateway's receipt contain the head start of the tools.
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
            if self._prefills is not None and not all(task.done() for task in tasks):
                self._prefills.submit(body | {"messages": list(result.messages)})
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
        if self._prefills is not None:
            stream = await self._prefills.extend(body)
            if stream is not None:
                result.extended += 1
                return stream
        return await self._client.chat.completions.create(**body)


class NextPrefill:
    """The prefill of the next prompt: submitted while tools run, then extended or discarded. If
    any of this fails, the call is made without it."""

    def __init__(self, hints: AsyncHints, ttl_s: float | None) -> None:
        self._hints = hints
        self._ttl_s = ttl_s
        self._supported = True
        self._asked: asyncio.Task[Prefill | None] | None = None

    def submit(self, body: Mapping[str, Any]) -> None:
        """Submit the prefill of a body's messages."""
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
        """Make the call as an extension of the prefill. Returns None if no prefill is available."""
        import openai

        prefill = await self._taken()
        if prefill is None:
            return None
        try:
            return await self._hints.extend_prefill(prefill, **body)
        except openai.APIError:
            return None  # Expired or another prefix; a plain call reports any other error.

    async def discard(self) -> None:
        """Discard the prefill: the loop has ended."""
        import openai

        prefill = await self._taken()
        if prefill is not None:
            with contextlib.suppress(openai.APIError):
                await self._hints.discard_prefill(prefill)

    async def _taken(self) -> Prefill | None:
        """The handle; the next call returns None."""
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
