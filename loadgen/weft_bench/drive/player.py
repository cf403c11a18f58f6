"""Plays programs against a gateway, closed loop, over HTTP only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft_bench.drive.client import Client, Refused
from weft_bench.drive.gateway import EngineCounters, read_counters, session
from weft_bench.drive.loop import at_arrivals, closed_loop
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.parts import tag_spans, token_ids
from weft_bench.workloads.schema import TAGS


@dataclass(slots=True)
class ProgramResult:
    """Result of one program.

    Times are seconds since the start of the play. Tokens are the engine's counts. The last five
    fields come from the gateway's session. cut: the play ended before the program; finish_s is then
    the end of the play, and the gateway's figures are missing.
    """

    id: str
    arrival_s: float
    finish_s: float = 0.0
    calls: int = 0
    output_tokens: int = 0
    errors: list[str] = field(default_factory=list)
    service_s: float = 0.0
    waiting_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    cut: bool = False

    @property
    def response_s(self) -> float:
        """Seconds from arrival to the last answer, tool gaps included."""
        return self.finish_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class Play:
    """One play of a workload: results of its programs and counters of the engines."""

    programs: Sequence[ProgramResult]
    engines: EngineCounters = field(default_factory=EngineCounters)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps of the trace, scaled and then limited to `longest_s`, seconds.

    The limit removes long human pauses, which are not load.
    """

    scale: float
    longest_s: float

    def of(self, gap_s: float) -> float:
        """Return the gap to wait."""
        return min(self.longest_s, gap_s * self.scale)


class Player:
    """Plays a workload once.

    run_id: separates the programs of different plays. tell_tags: send the tags of prompts that the
    trace has; otherwise the gateway is asked not to derive them from messages.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        run_id: str,
        gaps: Gaps,
        *,
        tell_tags: bool = True,
    ) -> None:
        self._client = client
        self._model = model
        self._run = run_id
        self._gaps = gaps
        self._tell_tags = tell_tags

    async def play(
        self,
        programs: Sequence[ReadyProgram],
        arrivals: Sequence[float],
        on_call: Callable[[], None],
        limit_s: float | None = None,
    ) -> Play:
        """Start each program at its arrival.

        A call waits for the answers that it needs and for their gaps. Independent calls of a
        program run in parallel. Programs that have not ended after `limit_s` seconds are cut off.
        Raises OSError or ValueError if the gateway does not report its engines' state.
        """
        before = await read_counters(self._client)
        results = [
            ProgramResult(program.id, arrival)
            for program, arrival in zip(programs, arrivals, strict=True)
        ]
        begun = time.monotonic()
        tasks = at_arrivals(
            arrivals, lambda n, begun: self._program(programs[n], begun, results[n], on_call)
        )
        try:
            await asyncio.wait_for(asyncio.gather(*tasks), limit_s)
        except TimeoutError:
            ended_s = time.monotonic() - begun
            late = [r for task, r in zip(tasks, results, strict=True) if task.cancelled()]
            for result in late:
                result.cut, result.finish_s = True, ended_s
            # Their calls have lost their client.
            await asyncio.gather(
                *(self._client.delete(session(f"{self._run}-{result.id}")) for result in late),
                return_exceptions=True,
            )
        after = await read_counters(self._client)
        return Play(results, after.since(before))

    async def _program(
        self,
        program: ReadyProgram,
        begun: float,
        result: ProgramResult,
        on_call: Callable[[], None],
    ) -> None:
        name = f"{self._run}-{program.id}"
        try:
            await self._client.post("/v1/sessions", {"id": name})
            await self._calls(name, program, begun, result, on_call)
            totals = (await self._client.get(session(name))).json()
            await self._client.delete(session(name))
            for key in ("service_s", "waiting_s", "prompt_tokens", "cached_tokens", "preemptions"):
                setattr(result, key, totals[key])
        except (OSError, KeyError, ValueError) as error:
            result.errors.append(f"{type(error).__name__}: {error}")

    async def _calls(
        self,
        name: str,
        program: ReadyProgram,
        begun: float,
        result: ProgramResult,
        on_call: Callable[[], None],
    ) -> None:
        """Play the calls. After an error no call starts."""

        async def ask(number: int) -> bool:
            await self._call(name, program.calls[number], result)
            result.finish_s = time.monotonic() - begun
            on_call()
            return not result.errors

        def gap_s(number: int) -> float:
            return self._gaps.of(program.calls[number].call.gap_s)

        await closed_loop(program, begun, gap_s, ask)

    async def _call(self, program: str, call: ReadyCall, result: ProgramResult) -> None:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": call.max_tokens,
            "temperature": 0,
            # Generate exactly the recorded length, whatever the model answers.
            "ignore_eos": True,
        }
        if not self._tell_tags:
            body["weft"] = {"tags": []}
        if call.call.messages:
            path, body["messages"] = "/v1/chat/completions", list(call.call.messages)
            if call.call.tools:
                body["tools"] = list(call.call.tools)
                body["tool_choice"] = "none"
        else:
            path = "/v1/completions"
            body["prompt"] = list(token_ids(call.call.parts))
            tags = tag_spans(call.call.parts)
            if self._tell_tags and tags:
                body["weft"] = {"tags": spans(tags)}
        try:
            answer = await self._client.post(path, body, {"x-weft-program": program})
            result.output_tokens += answer.json()["usage"]["completion_tokens"]
            result.calls += 1
        except Refused as error:
            result.errors.append(str(error))
        except (OSError, KeyError, ValueError) as error:
            result.errors.append(f"{type(error).__name__}: {error}")


def spans(tags: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Return tags of a prompt's tokens in the gateway's format.

    A span gets at least the priority of every span after it, as with tags from messages: a prefix
    cache cannot reach beyond an evicted block.
    """
    worth: list[tuple[int, str]] = []
    for end, tag in reversed(tags):
        if not worth or TAGS[tag] > TAGS[worth[-1][1]]:
            worth.append((end, tag))
    worth.reverse()
    starts = [0, *(end for end, _ in worth)]
    return [
        {"start": start, "end": end, "tag": tag}
        for start, (end, tag) in zip(starts, worth, strict=False)
    ]
