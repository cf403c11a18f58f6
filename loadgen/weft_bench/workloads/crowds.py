"""Scenes in which memory is scarce in one certain way. Each is a fixed list of programs, of which a
name's part before the number says the kind; draws vary the lengths and arrivals a little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from msgspec.structs import replace

from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import stream
from weft_bench.workloads.workload import Dialogue, Workload

_SOURCE: Final = "none: a scene of the study `crowds`"
_COLD: Final = "none: a scene of the study `cold-starts`"
_CHILDREN: Final = 51
_PARENT_TOKENS: Final = 6000
_CHILD_TOKENS: Final = 8000
# The earlier group of agents has ended by then, under every order.
_SWITCH_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Agent:
    """Lengths of an agent's dialogue, in tokens and seconds. shared: at the beginning of its
    context, common to all agents. own: of its first prompt beside that."""

    calls: int
    own: int
    shared: int = 0
    result: int = 300
    answer: int = 150
    gap_s: float = 2.0


def _agent(name: str, one: _Agent, draw: Random, arrival_s: float) -> TraceProgram:
    head = (Part("crowd/system", one.shared, "system"),) if one.shared else ()
    dialogue = Dialogue(name, head)
    dialogue.say("user", one.own)
    for _ in range(one.calls):
        dialogue.call(_near(draw, one.answer), one.gap_s * draw.uniform(0.5, 1.5))
        dialogue.say("tool", _near(draw, one.result))
    return replace(dialogue.program(), arrival_s=arrival_s)


def _near(draw: Random, length: int) -> int:
    return max(1, round(length * draw.uniform(0.7, 1.3)))


def _fan_out(name: str, draw: Random, arrival_s: float) -> TraceProgram:
    """A parent's call, children whose prompts begin with its context, and a call with all their
    answers."""
    head = (Part(f"{name}/task", _PARENT_TOKENS - 200, "user"), Part(f"{name}/plan", 200))
    calls = [TraceCall(parts=head[:1], output_tokens=200, answer=head[1].name)]
    for number in range(_CHILDREN):
        own = Part(f"{name}/part/{number}", _CHILD_TOKENS - _PARENT_TOKENS, "user")
        answer = f"{name}/found/{number}"
        tokens = _near(draw, 150)
        calls.append(TraceCall(parts=(*head, own), output_tokens=tokens, after=(0,), answer=answer))
    answers = tuple(Part(call.answer, call.output_tokens, "tool") for call in calls[1:])
    every = tuple(range(1, _CHILDREN + 1))
    calls.append(TraceCall(parts=(*head, *answers), output_tokens=300, after=every))
    return TraceProgram(name, tuple(calls), arrival_s)


def _shared_prefix(calls: int, apart_s: float, seed: int, number: int) -> TraceProgram:
    """Agents that share 12,000 of the first 14,000 tokens."""
    draw = stream(seed, f"agent/{number}")
    one = _Agent(calls=calls, own=2000, shared=12_000, result=200, answer=150)
    return _agent(f"agent-{number}", one, draw, number * apart_s)


def _fan_outs(first: bool, seed: int, number: int) -> TraceProgram:
    """A fan-out of 51 children as the first or last of seven programs; the others are agents."""
    draw = stream(seed, f"agent/{number}")
    arrival_s = 0.5 * number + draw.random() / 4
    if number % 7 == (0 if first else 6):
        return _fan_out(f"fan-out-{number}", draw, arrival_s)
    return _agent(f"agent-{number}", _Agent(calls=12, own=7000), draw, arrival_s)


def _large(seed: int, number: int) -> TraceProgram:
    """A context of 120,000 tokens after eight agents of 7,000 to 20,000."""
    draw = stream(seed, f"agent/{number}")
    if number % 9 == 8:
        return _agent(f"large-{number}", _Agent(calls=3, own=120_000), draw, 10.0)
    own = 7000 + (number % 9) * 1500
    return _agent(f"agent-{number}", _Agent(calls=30, own=own, result=100), draw, number / 4)


def _cold(first: int, seed: int, number: int) -> TraceProgram:
    """16 agents at a tenth of a second, of which about seven fit; with `first`, after a group that
    fits and has ended."""
    draw = stream(seed, f"agent/{number}")
    own = round(draw.uniform(15_000, 60_000))
    if number < first:
        one = _Agent(calls=4, own=own, result=1000, answer=100)
        return _agent(f"earlier-{number}", one, draw, 0.0)
    one = _Agent(calls=8, own=own, result=1000, answer=150)
    begin_s = _SWITCH_S if first else 0.0
    return _agent(f"agent-{number}", one, draw, begin_s + (number - first) / 10)


def _chats(seed: int, number: int) -> TraceProgram:
    """16 agents with contexts of tens of thousands of tokens, and a chat every two seconds."""
    draw = stream(seed, f"agent/{number}")
    if number < 16:
        own = round(draw.uniform(15_000, 60_000))
        one = _Agent(calls=16, own=own, result=2500, answer=250, gap_s=5.0)
        return _agent(f"agent-{number}", one, draw, number / 2)
    chat = _Agent(calls=1, own=_near(draw, 500), answer=64)
    return _agent(f"chat-{number}", chat, draw, 2.0 * (number - 16))


def _workload(
    name: str, program: Callable[[int, int], TraceProgram], source: str = _SOURCE
) -> Workload:
    return Workload(name, source, program)


WORKLOADS: Final = (
    _workload("shared_prefix", partial(_shared_prefix, 30, 0.0)),
    _workload("shared_prefix_staggered", partial(_shared_prefix, 30, 1.0)),
    _workload("shared_prefix_short", partial(_shared_prefix, 8, 1.0)),
    _workload("fan_out_first", partial(_fan_outs, True)),
    _workload("fan_out_last", partial(_fan_outs, False)),
    _workload("one_large_context", _large),
    _workload("chats_beside_agents", _chats),
    _workload("cold_start", partial(_cold, 0), _COLD),
    _workload("cold_switch", partial(_cold, 6), _COLD),
)
