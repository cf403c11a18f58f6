"""Shapes of programs for tests of tuning."""

from __future__ import annotations

from random import Random

from weft_gateway.tuning.replay.trace import Objective, ReplicaShape, Trace, Values
from weft_gateway.tuning.shapes import CallShape

# A fast engine, and one of a third of its speed.
FAST = ReplicaShape("fast", (0.001, 0.02, 3e-4, 1e-4, 0.0), 16, 2048, 200_000, (7,))
SLOW = ReplicaShape("slow", (0.003, 0.06, 9e-4, 3e-4, 0.0), 16, 2048, 200_000, (7,))


def shape(program: int = 1, begin: float = 0.0, end: float = 1.0, **fields: object) -> CallShape:
    """Return a call of a program."""
    known = {
        "unit": program, "prompt": 1000, "cached": 0, "known": 0, "output": 50, "kind": 3,
        "model": 7, "replica": "fast", "resumed": False, "alone_s": 1.0, "service_s": 1.0,
    }  # fmt: skip
    return CallShape(program=program, begin_s=begin, end_s=end, **(known | fields))  # type: ignore[arg-type]


def calls(programs: int, seed: int = 0, each: int = 20, rate: float = 0.4) -> list[CallShape]:
    """Return the calls of programs that arrive at this rate."""
    rng, begin, found = Random(seed), 0.0, []
    for program in range(1, programs + 1):
        begin += rng.expovariate(rate)
        at = begin
        for number in range(each):
            length = rng.uniform(0.5, 2.0)
            prompt, output = rng.randint(200, 6000), rng.randint(5, 300)
            found.append(
                shape(
                    program, at, at + length, prompt=prompt, output=output, kind=number % 4,
                    replica=rng.choice(("fast", "slow")), resumed=number > 3, alone_s=length / 2,
                    cached=prompt // 4,
                )
            )  # fmt: skip
            at += length + rng.uniform(0.0, 0.2)
    return found


def trace(programs: int = 20, **fields: object) -> Trace:
    """Return a trace of these programs on two engines, with alpha 0.2."""
    made = fields.pop("calls", None) or calls(programs)
    known = {
        "counted": sorted({call.unit for call in made}), "replicas": (FAST, SLOW),
        "balancer": "work", "threshold_tokens": 2048, "order": "urgency", "options": {},
        "current": Values(alpha=0.2), "objective": Objective.LATENCY,
    }  # fmt: skip
    return Trace(calls=made, **(known | fields))  # type: ignore[arg-type]
