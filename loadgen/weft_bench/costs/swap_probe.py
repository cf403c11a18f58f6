"""Measures how long a running engine takes to move a KV block to the host and back, over HTTP.

The engine has one slot, KV blocks for one longest context, swap, and the order `plas`. `plas`
receives the attained service of each call's program, so the preempted call is certain. A call of a
program with much service runs. A short call preempts it and is delayed by the copies out. A call of
a whole context then overwrites the first call's blocks, and the first call's next token is delayed
by the copies in. Two lengths of the first call separate the copies from all other delays.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any, Final

from weft_engine.wire import XARG_SERVICE

from weft_bench.costs.step_probe import COMPLETIONS, ProbeError, random_prompts
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import served
from weft_bench.stats import percentile

ORDER: Final = "plas"
# Lengths of the preempted call, as shares of the context.
_SHARES: Final = (1 / 8, 3 / 4)
# More tokens than are generated before the preemption; the rest is not awaited.
_TOKENS: Final = 512
_BEGUN: Final = 4
_SHORT: Final = 8
# Reserve for the generated token and the one before it.
_RESERVE: Final = 8
_CALL_S: Final = 600.0
_SERVED_S: Final = 1e6


@dataclass(frozen=True, slots=True)
class Moved:
    """One scene: blocks moved out and in by the engine's count, and the delays, seconds."""

    out: int
    back: int
    out_s: float
    back_s: float


async def probe_swap(
    url: str, rounds: int, done: Callable[[], None], clock: Callable[[], float] = perf_counter
) -> float:
    """Return the seconds of one block, the mean of both directions.

    Each direction uses medians over the rounds. done: called after each scene. Raises ProbeError,
    also if nothing was swapped.
    """
    try:
        async with Client(url, limit_s=_CALL_S) as client:
            probe = _Probe(client, *await served(client), clock)
            if probe.context < 2 * _TOKENS:
                raise ProbeError(f"{url}: the context needs at least {2 * _TOKENS} tokens")
            async with AsyncExitStack() as stack:
                before = (await probe.state())["policy"]
                await probe.order(ORDER)
                stack.push_async_callback(probe.order, before)
                found: list[list[Moved]] = [[] for _ in _SHARES]
                # The first scene of an engine is slower than all later ones.
                await probe.scene(_SHARES[0])
                for _ in range(rounds):
                    for share, moved in zip(_SHARES, found, strict=True):
                        moved.append(await probe.scene(share))
                        done()
    except (OSError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ProbeError(f"{url}: swaps cannot be measured: {error!r}") from None
    return per_block(found[0], found[1])


def scenes(rounds: int) -> int:
    """Return the number of scenes."""
    return rounds * len(_SHARES)


def per_block(few: list[Moved], many: list[Moved]) -> float:
    """Return the seconds of a block, from scenes with few and many blocks. Raises ProbeError."""
    found = []
    for blocks, seconds in (("out", "out_s"), ("back", "back_s")):
        moved = [percentile([getattr(m, blocks) for m in side], 0.5) for side in (few, many)]
        took = [percentile([getattr(m, seconds) for m in side], 0.5) for side in (few, many)]
        if moved[1] <= moved[0]:
            raise ProbeError(
                "no blocks were swapped: the engine needs swap, one slot, and KV blocks for one "
                "longest context and no more"
            )
        found.append(max(0.0, (took[1] - took[0]) / (moved[1] - moved[0])))
    return sum(found) / len(found)


@dataclass(frozen=True, slots=True)
class _Probe:
    client: Client
    model: str
    context: int
    clock: Callable[[], float]

    async def scene(self, share: float) -> Moved:
        """Preempt one call twice, once to measure the copies out and once the copies in."""
        before = await self._swaps()
        length = min(int(share * self.context), self.context - _TOKENS - _RESERVE)
        long = self._body(length, _TOKENS, _SERVED_S, stream=True)
        short, whole = (self._body(n, 1, 0.0) for n in (_SHORT, self.context - _RESERVE))
        times: asyncio.Queue[float] = asyncio.Queue()
        first = asyncio.create_task(self._stream(long, times))
        try:
            for _ in range(_BEGUN):
                await self._next(times)
            asked = self.clock()
            await self._call(short)
            out_s = self.clock() - asked
            await self._call(whole)
            answered = self.clock()
            back = answered
            while back <= answered:
                back = await self._next(times)
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        after = await self._swaps()
        return Moved(after[0] - before[0], after[1] - before[1], out_s, back - answered)

    async def state(self) -> Any:
        """Return the engine core's state."""
        return (await self.client.get("/weft/state")).json()["engines"][0]

    async def order(self, policy: str) -> None:
        """Switch the order. Raises ValueError if the engine rejects it."""
        (await self.client.post("/weft/policy", {"policy": policy})).json()

    async def _swaps(self) -> tuple[int, int]:
        swap = (await self.state())["swap"]
        if swap is None:
            raise ProbeError("the engine was started without swap")
        return int(swap["swapped_out"]), int(swap["swapped_in"])

    async def _next(self, times: asyncio.Queue[float]) -> float:
        """Return when the next token arrived. Raises ProbeError if the stream has ended."""
        time = await times.get()
        if time == inf:
            raise ProbeError("a call failed, or ended before it was preempted")
        return time

    async def _call(self, body: bytes) -> None:
        (await self.client.post(COMPLETIONS, body)).json()

    async def _stream(self, body: bytes, times: asyncio.Queue[float]) -> None:
        """Put the arrival of each token into the queue, and infinity at the end of the stream."""

        def take(event: str, data: bytes) -> None:
            if data.startswith(b"{"):
                times.put_nowait(self.clock())

        try:
            await self.client.post(COMPLETIONS, body, on_event=take)
        finally:
            times.put_nowait(inf)

    def _body(self, length: int, tokens: int, served_s: float, *, stream: bool = False) -> bytes:
        """Return a call's body, prepared in advance, because encoding a long prompt takes time."""
        body = random_prompts(self.model, 1, length, tokens)
        body |= {"prompt": body["prompt"][0], "stream": stream}
        body["vllm_xargs"][XARG_SERVICE] = served_s
        return json.dumps(body).encode()
