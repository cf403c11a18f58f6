"""Plays agents' requests against a gateway with different degrees of overlap, over HTTP only.

It acts like the orchestrator in Sutradhara's figure 6: (a) all steps in sequence; (b) the next
prompt's tool-independent part is prefilled while tools run; (c) tools start while the model still
generates its next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from weft_bench.drive.client import Client
from weft_bench.drive.gateway import session
from weft_bench.drive.loop import at_arrivals
from weft_bench.overlap.probe import forced
from weft_bench.overlap.prompts import ReadyTurn, tools
from weft_bench.overlap.shape import ShapeRequest
from weft_bench.stats import percentile

_DISPATCH: Final = "tool_call_dispatch"
# An unused handle expires after this time.
_PREFILL_TTL_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Row:
    """A configuration of Table 2.

    split: prefill while tools run. dispatch: start each tool when its call is complete. tags:
    engines evict by the type of a prompt's content.
    """

    name: str
    split: bool = False
    dispatch: bool = False
    tags: bool = False


ROWS: Final = (
    Row("baseline"),
    Row("+ splitting", split=True),
    Row("+ dispatch", split=True, dispatch=True),
    Row("+ tags", split=True, dispatch=True, tags=True),
)


@dataclass(frozen=True, slots=True)
class Work:
    """One request.

    seconds: duration of each tool of each turn. final_tokens: length of the final answer.
    """

    number: int
    turns: Sequence[ReadyTurn]
    seconds: Sequence[Sequence[float]]
    final_tokens: int


@dataclass(slots=True)
class Result:
    """The result of one request.

    Times are in seconds. ftr_s, e2e_s: from submission to the final answer's first token (FTR) and
    last token. tool_s: from an answer to the end of its tools, over all turns. extended: turns that
    extended a prefill. dispatched: tools that the gateway reported during the answer. saved_s: time
    that overlap saved, from the calls' receipts. prompt_tokens: of all turns. computed_tokens:
    those that were not cached, prefills included.
    """

    number: int
    ftr_s: float = 0.0
    e2e_s: float = 0.0
    tool_s: float = 0.0
    extended: int = 0
    dispatched: int = 0
    saved_s: dict[str, float] = field(default_factory=dict)
    prompt_tokens: int = 0
    computed_tokens: int = 0
    errors: list[str] = field(default_factory=list)


class PlayError(RuntimeError):
    """A request cannot continue. The message gives the cause."""


@dataclass(slots=True)
class _Answer:
    text: str = ""
    finish: str = ""
    tokens: int = 0
    prompt_tokens: int = 0
    first_at: float = 0.0


class OverlapPlayer:
    """Plays one row once.

    `run_id` separates the programs of different plays. tool: runs a tool for the given seconds.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        row: Row,
        run_id: str,
        tool: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._model = model
        self._row = row
        self._run = run_id
        self._tool = tool
        self._tools = tools()

    async def play(
        self, works: Sequence[Work], arrivals: Sequence[float], on_done: Callable[[], None]
    ) -> list[Result]:
        """Submit each request at its arrival, in seconds from now, independently of the others."""

        async def one(number: int, begun: float) -> Result:
            result = await self._request(works[number])
            on_done()
            return result

        return await asyncio.gather(*at_arrivals(arrivals, one))

    async def _request(self, work: Work) -> Result:
        result = Result(work.number)
        name = f"{self._run}-{work.number}"
        headers = {"x-weft-program": name}
        submitted = time.monotonic()
        try:
            prefill = ""
            for turn, following, seconds in zip(
                work.turns, work.turns[1:], work.seconds, strict=False
            ):
                prefill = await self._turn(turn, following, seconds, prefill, headers, result)
            await self._final(work, prefill, headers, submitted, result)
            story = (await self._client.get(f"{session(name)}/story")).json()
            totals = (await self._client.get(session(name))).json()
            result.saved_s = {kind: float(s) for kind, s in story["saved_s"].items()}
            result.computed_tokens = totals["prompt_tokens"] - totals["cached_tokens"]
        except (OSError, PlayError, KeyError, ValueError) as error:
            result.errors.append(f"{type(error).__name__}: {error}")
        with contextlib.suppress(OSError):
            await self._client.delete(session(name))
        return result

    async def _turn(
        self,
        turn: ReadyTurn,
        following: ReadyTurn,
        seconds: Sequence[float],
        prefill: str,
        headers: Mapping[str, str],
        result: Result,
    ) -> str:
        """Run an answer with tool calls, and its tools.

        Returns the handle of the next turn's prefill, or "".
        """
        running: dict[int, asyncio.Task[None]] = {}

        def start(index: int) -> None:
            if index not in running and index < len(seconds):
                running[index] = asyncio.create_task(self._tool(seconds[index]))

        def told(index: int) -> None:
            result.dispatched += 1
            start(index)

        try:
            body = {**forced(self._model, turn.answer), "messages": turn.messages}
            on_call = told if self._row.dispatch else None
            answer = await self._ask(body, prefill, headers, on_call, result)
            ended = time.monotonic()
            if answer.text != turn.answer:
                raise PlayError(f"the answer differs from the forced calls: {answer.text[-200:]!r}")
            for index in range(len(seconds)):
                start(index)
            asked = None
            if self._row.split and not all(task.done() for task in running.values()):
                asked = asyncio.create_task(self._submit(following, headers))
            await asyncio.gather(*running.values())
            result.tool_s += time.monotonic() - ended
            return await asked if asked is not None else ""
        finally:
            for task in running.values():
                task.cancel()

    async def _final(
        self,
        work: Work,
        prefill: str,
        headers: Mapping[str, str],
        submitted: float,
        result: Result,
    ) -> None:
        body = {
            "model": self._model,
            "messages": work.turns[-1].messages,
            "tools": self._tools,
            "tool_choice": "none",
            "max_tokens": work.final_tokens,
            "temperature": 0,
            # Forces the exact length.
            "ignore_eos": True,
        }
        answer = await self._ask(body, prefill, headers, None, result)
        result.e2e_s = time.monotonic() - submitted
        result.ftr_s = answer.first_at - submitted
        if answer.tokens != work.final_tokens:
            raise PlayError(f"received {answer.tokens} of {work.final_tokens} tokens")

    async def _submit(self, turn: ReadyTurn, headers: Mapping[str, str]) -> str:
        """Prefill a turn's tool-independent part. Returns the handle."""
        body = {
            "model": self._model,
            "messages": list(turn.independent),
            "tools": self._tools,
            "ttl_s": _PREFILL_TTL_S,
        }
        answer = await self._client.post("/v1/hints/prefill", body, headers)
        return str(answer.json(201)["id"])

    async def _ask(
        self,
        body: dict[str, Any],
        prefill: str,
        headers: Mapping[str, str],
        on_call: Callable[[int], None] | None,
        result: Result,
    ) -> _Answer:
        """Send one streamed call. on_call: called with each call's index when the gateway reports
        it.
        """
        path = f"hints/prefill/{prefill}/extend" if prefill else "chat/completions"
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        if not self._row.tags:
            body["weft"] = {"tags": []}
        if on_call is not None:
            headers = {**headers, "x-weft-tool-dispatch": "1"}
        answer = _Answer()

        def take(event: str, data: bytes) -> None:
            if data.startswith(b"{"):
                chunk = json.loads(data)
                if event != _DISPATCH:
                    _take(answer, chunk)
                elif on_call is not None:
                    on_call(int(chunk["tool_call"]["index"]))

        found = await self._client.post(f"/v1/{path}", body, headers, take)
        if found.status != 200:
            raise PlayError(f"{found.status}: {found.text[:300]}")
        if answer.finish not in ("stop", "length"):
            raise PlayError(f"the answer ended with {answer.finish or 'nothing'}")
        result.prompt_tokens += answer.prompt_tokens
        result.extended += bool(prefill)
        return answer


def _take(answer: _Answer, chunk: Mapping[str, Any]) -> None:
    if "error" in chunk:
        raise PlayError(str(chunk["error"])[:300])
    for choice in chunk["choices"]:
        text = choice["delta"].get("content")
        if text:
            answer.first_at = answer.first_at or time.monotonic()
            answer.text += text
        answer.finish = choice.get("finish_reason") or answer.finish
    usage = chunk.get("usage")
    if usage:
        answer.tokens = usage["completion_tokens"]
        answer.prompt_tokens = usage["prompt_tokens"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned request.

    model_s: the model's seconds until the final answer's first token, alone and with nothing
    cached. final_tokens, final_s: length of the final answer and seconds to decode it.
    """

    request: ShapeRequest
    turns: Sequence[ReadyTurn]
    model_s: float
    final_tokens: int
    final_s: float

    def work(self, slower: float) -> Work:
        """Return the request to play. slower: real duration divided by `model_s`."""
        seconds = self.request.tool_seconds(slower * self.model_s)
        return Work(self.request.number, self.turns, seconds, self.final_tokens)

    def e2e_s(self, slower: float) -> float:
        """Return the seconds until the final answer's last token."""
        tools_s = sum(max(each) for each in self.request.tool_seconds(slower * self.model_s))
        return slower * self.model_s + tools_s + self.final_s


def slowdown(plans: Sequence[Plan], results: Sequence[Result]) -> float:
    """Return the median ratio of real time without tools to `model_s`, without overlap.

    Requests wait for each other, for grammars and for the gateway, and find parts of their prompts
    cached. The published shares refer to the total time of requests (Sutradhara 3.2). results: of
    the plans, in their order. Raises ValueError if every request failed.
    """
    ratios = [
        (result.ftr_s - result.tool_s) / plan.model_s
        for plan, result in zip(plans, results, strict=True)
        if not result.errors
    ]
    if not ratios:
        first = results[0].errors[0] if results else "no request was played"
        raise ValueError(f"no request was answered: {first}")
    return percentile(ratios, 0.5)
