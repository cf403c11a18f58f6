"""Small workloads and engines for tests of the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs
from weft_bench.workloads.cutting import ReadyProgram, fit
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import stream
from weft_engine.emulated.cost_model import CostModel
from weft_engine.emulated.presets import EngineShape, preset

CONTEXT = 131_072


def engine(**changes: Any) -> EngineShape:
    """Return an 8B model on an A100 with a small KV cache."""
    return replace(preset("8b-a100"), **{"slots": 8, "kv_blocks": 400, **changes})


def ticking(step_s: float = 1.0, **changes: Any) -> EngineShape:
    """Return an engine whose steps all take the same time."""
    return engine(cost=CostModel(step_s=step_s), **changes)


def ready(name: str, *calls: TraceCall) -> ReadyProgram:
    """Return a program that fits into the contexts of these tests."""
    program = fit(TraceProgram(name, calls), CONTEXT, 4.0)
    assert program is not None
    return program


def single(name: str, prompt: int, output: int) -> ReadyProgram:
    """Return a program of one call."""
    parts = (Part(f"{name}/prompt", prompt, "user"),)
    return ready(name, TraceCall(parts=parts, output_tokens=output))


def chat(seed: int, number: int, *, wide: bool = False) -> ReadyProgram:
    """Return a dialogue with a shared system prompt, growing context and pauses for tools.

    It has at most 2,200 tokens, and usually far fewer. wide: each second call runs twice in
    parallel.
    """
    draw = stream(seed, f"chat/{number}")
    name = f"chat-{number}"
    parts: tuple[Part, ...] = (Part("system", 150, "system"),)
    calls: list[TraceCall] = []
    last: tuple[int, ...] = ()
    for turn in range(1 + min(6, int(draw.expovariate(1 / 3)))):
        asked = 1 + min(150, int(draw.expovariate(1 / 60)))
        parts += (Part(f"{name}/asked/{turn}", asked, "tool"),)
        tokens = 1 + min(130, int(draw.expovariate(1 / 50)))
        answer = Part(f"{name}/answer/{turn}", tokens, "assistant")
        call = TraceCall(
            parts=parts,
            output_tokens=tokens,
            gap_s=draw.choice((0.0, 0.0, draw.expovariate(1.0))),
            after=last,
            answer=answer.name,
        )
        twins = [call, structs.replace(call, answer="")] if wide and turn % 2 else [call]
        last = tuple(range(len(calls), len(calls) + len(twins)))
        calls += twins
        parts += (answer,)
    return ready(name, *calls)


def chats(seed: int, count: int, *, wide: bool = False) -> list[ReadyProgram]:
    """Return `count` dialogues."""
    return [chat(seed, number, wide=wide) for number in range(count)]
