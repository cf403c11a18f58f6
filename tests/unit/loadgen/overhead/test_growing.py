"""Conversations of the overhead bench, and their rows."""

from __future__ import annotations

import json
from itertools import pairwise

from weft_bench.overhead import growing
from weft_bench.overhead.conversations import Conversation


def test_bodies_begin_with_the_messages_before_and_have_the_size():
    bodies = list(Conversation("mock", 50_000, 1).bodies(4))
    read = [json.loads(body) for body in bodies]
    assert abs(len(bodies[0]) - 50_000) < 3_000
    for (early, late), (before, after) in zip(pairwise(read), pairwise(bodies), strict=True):
        count = len(early["messages"])
        assert late["messages"][:count] == early["messages"]
        assert len(late["messages"]) == count + 2
        end = before.rindex(b'],"model"')
        assert after.startswith(before[:end])


def test_conversations_differ():
    first, second = (next(Conversation("mock", 9_000, seed).bodies(1)) for seed in (1, 2))
    assert first != second


def test_rows_compare_with_the_rival_and_the_smaller_body():
    def cell(cpu: float, latency: float) -> growing.Sample:
        return {"cpu_us": cpu, "p50_ms": latency, "p99_ms": 2 * latency, "errors": 0.0}

    samples = {
        ("yes", size, name): [cell(cpu, latency)]
        for size, name, cpu, latency in (
            (150_000, "direct", 0.0, 1.0), (150_000, "weft", 500.0, 3.0),
            (150_000, "vllm-router", 250.0, 2.0), (850_000, "direct", 0.0, 1.0),
            (850_000, "weft", 1000.0, 4.0), (850_000, "vllm-router", 4000.0, 9.0),
        )
    }  # fmt: skip
    found = growing.rows(samples, {("yes", "weft"): 30_000.0})
    assert found["yes", "150000", "weft"]["cpu_over"] == 2.0
    assert found["yes", "850000", "weft"] == {
        "added_p50": 3.0, "added_p99": 6.0, "errors": 0.0, "cpu": 1000.0, "cpu_over": 0.25,
        "cpu_growth": 2.0, "memory": 30_000.0,
    }  # fmt: skip
