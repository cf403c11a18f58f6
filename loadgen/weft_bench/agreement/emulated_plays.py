"""Plays scenes on one emulated engine behind a gateway, in real time."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median
from typing import Final
from uuid import uuid4

from prometheus_client.parser import text_string_to_metric_families
from weft_engine.emulated.presets import EngineShape
from weft_engine.step_cost import attention_pairs

from weft_bench.agents.contents import messages_of
from weft_bench.agreement.compare import Delay, Played
from weft_bench.agreement.scenes import Case, Scene
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import CHAT, served, set_order
from weft_bench.drive.player import Gaps, Player
from weft_bench.stack.local import local_stack
from weft_bench.stats import mean
from weft_bench.workloads.schema import Part, TraceCall

_PREFIX: Final = "weft_emulated_"
_NO_LIMIT_S: Final = 1e9
# The first calls open connections.
_WARM_UP: Final = 3
_PROBES: Final = 12
_PROBE_TOKENS: Final = 64
_ANSWER: Final = 4
# Words of the chats that show the time per token.
_CHATS: Final = (1000, 60_000)


def start(case: Case, preset: str, dilate: float) -> AbstractContextManager[str]:
    """Start a gateway and the engine of a case for a block. Yields the gateway's URL.

    Raises StackError on entry.
    """
    shape = case.shape(preset)
    line = ["--replicas", "1", "--emulated", "--preset", preset, "--dilate", f"{dilate:g}"]
    line += ["--", "--max-num-seqs", str(shape.slots)]
    line += ["--num-gpu-blocks-override", str(shape.kv_blocks)]
    settings = {"swap_gib": case.swap_gib}
    return local_stack(line, {"WEFT_ENGINE_SETTINGS": json.dumps(settings)})


@dataclass(frozen=True, slots=True)
class Emulated:
    """One emulated engine. client: of the gateway. engine: URL of the engine."""

    client: Client
    engine: str
    model: str
    dilate: float

    async def delay(self, shape: EngineShape, *, chats: bool) -> Delay:
        """Measure the idle engine. chats: also the time of a chat per token of its prompt."""
        call_s = await self._call_s(shape)
        return Delay(call_s, await self._token_s(shape) if chats else 0.0)

    async def _token_s(self, shape: EngineShape) -> float:
        """Return how much longer a chat takes per token, for the gateway and the tokenizer."""
        spent: list[tuple[int, float]] = []
        for length in _CHATS:
            messages = messages_of(TraceCall(parts=(Part(f"chat/{length}", length, "user"),)))
            body = {"model": self.model, "messages": messages, "max_tokens": 1}
            found = []
            # All but the first find the prompt in the cache, so that the engine does little.
            for _ in range(1 + _PROBES):
                begun = time.monotonic()
                answer = await self.client.post(CHAT, body)
                prompt = int(answer.json()["usage"]["prompt_tokens"])
                found.append((time.monotonic() - begun) / self.dilate)
            cached = (prompt - 1) // shape.block_tokens * shape.block_tokens
            fresh = prompt - cached
            step_s = shape.cost.step(fresh, 0, cached, attention_pairs(fresh, cached))
            spent.append((prompt, median(found[1:]) - step_s))
        (short, short_s), (long, long_s) = spent
        return max(0.0, (long_s - short_s) / (long - short))

    async def _call_s(self, shape: EngineShape) -> float:
        found = []
        for number in range(_WARM_UP + _PROBES):
            # No prompt has a cached prefix.
            prompt = [100 + number] * _PROBE_TOKENS
            body = {"model": self.model, "prompt": prompt, "max_tokens": _ANSWER}
            begun = time.monotonic()
            answer = await self.client.post("/v1/completions", body | {"ignore_eos": True})
            answer.json()
            found.append((time.monotonic() - begun) / self.dilate)
        pairs = attention_pairs(_PROBE_TOKENS, 0)
        steps = shape.cost.step(_PROBE_TOKENS, 0, 0, pairs) + sum(
            shape.cost.step(0, 1, _PROBE_TOKENS + n) for n in range(_ANSWER - 1)
        )
        return max(0.0, median(found[_WARM_UP:]) - steps)

    async def play(self, scene: Scene, order: str) -> Played:
        """Play a scene with an empty cache.

        Raises OrderError, OSError, and ValueError for a failed call.
        """
        await set_order(self.client, order, reset_cache=True)
        before = await self._device()
        gaps = Gaps(self.dilate, _NO_LIMIT_S)
        player = Player(self.client, self.model, uuid4().hex[:8], gaps)
        arrivals = [at * self.dilate for at in scene.arrivals]
        played = await player.play(scene.programs, arrivals, lambda: None)
        device = {name: value - before[name] for name, value in (await self._device()).items()}
        programs = played.programs
        for program in programs:
            if program.errors:
                raise ValueError(f"{order}: {program.id}: {program.errors[0]}")
        prompts = sum(call.prompt_tokens for one in scene.programs for call in one.calls)
        if (counted := sum(program.prompt_tokens for program in programs)) != prompts:
            raise ValueError(f"the prompts have {prompts} tokens, the engine counts {counted}")
        calls = sum(program.calls for program in programs)
        return Played(
            program_s=mean([program.response_s for program in programs]) / self.dilate,
            call_s=sum(p.service_s + p.waiting_s for p in programs) / calls,
            hit_rate=sum(p.cached_tokens for p in programs)
            / sum(p.prompt_tokens for p in programs),
            preemptions=sum(program.preemptions for program in programs),
            moved_blocks=round(device["moved_blocks"]),
            steps=round(device["steps"]),
            busy_s=device["busy_seconds"],
            late_s=device["late_seconds"],
        )

    async def _device(self) -> dict[str, float]:
        """Return the totals of the emulated device."""
        async with Client(self.engine) as engine:
            text = (await engine.get("/metrics")).text
        return {
            sample.name.removeprefix(_PREFIX).removesuffix("_total"): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith(_PREFIX) and sample.name.endswith("_total")
        }


async def connected(client: Client, dilate: float) -> Emulated:
    """Return the engine behind a gateway. Raises OSError or ValueError if it does not answer."""
    model, _ = await served(client)
    health = (await client.get("/health")).json()
    return Emulated(client, str(health["replicas"][0]["url"]), model, dilate)
