"""The model of an engine against the sum of its steps."""

from __future__ import annotations

import pytest
from support.tuning import FAST
from weft_engine.orders import build_order
from weft_engine.wire import CallContext
from weft_gateway.tuning.replay.engine import EngineModel, Job

STEP_S = 0.021


def model(order: str = "fcfs", **fields: int) -> EngineModel:
    import msgspec

    return EngineModel(msgspec.structs.replace(FAST, **fields), build_order(order, {}))


def add(engine: EngineModel, name: str, now: float = 0.0, tokens: int = 10, **context: float):
    job = Job(len(name), name, 100, 10, tokens, now)
    return engine.add(job, CallContext(name, name, **context), now)


def play(engine: EngineModel, now: float = 0.0) -> dict[str, float]:
    ends = {}
    while (then := engine.begin(now)) is not None:
        now = then
        ends.update((job.name, now) for job in engine.finish(now))
    return ends


def test_a_call_takes_one_step_per_answer_token() -> None:
    engine = model()
    add(engine, "a")
    assert play(engine) == {"a": pytest.approx(10 * STEP_S)}


def test_calls_decode_together() -> None:
    engine = model()
    add(engine, "a")
    add(engine, "b", tokens=20)
    assert play(engine) == {"a": pytest.approx(10 * STEP_S), "b": pytest.approx(20 * STEP_S)}


def test_an_arrival_joins_at_the_next_step() -> None:
    engine = model()
    add(engine, "a", tokens=100)
    now = engine.begin(0.0)
    assert now is not None
    assert engine.finish(now) == []
    end = engine.begin(now)
    assert end == pytest.approx(100 * STEP_S)
    cut = add(engine, "b", now=now + 4.5 * STEP_S, tokens=1)
    assert cut == pytest.approx(now + 5 * STEP_S)
    assert engine.finish(cut) == []
    ends = play(engine, cut)
    assert ends == {"b": pytest.approx(7 * STEP_S), "a": pytest.approx(100 * STEP_S)}


def test_without_a_slot_calls_wait_in_order() -> None:
    engine = model("program_fifo", slots=1)
    add(engine, "a", arrival_s=3.0)
    add(engine, "b", arrival_s=2.0)
    add(engine, "c", arrival_s=1.0)
    assert list(play(engine)) == ["c", "b", "a"]


def test_without_memory_calls_wait() -> None:
    engine = model(kv_tokens=120)
    add(engine, "a")
    add(engine, "b")
    assert play(engine) == {"a": pytest.approx(10 * STEP_S), "b": pytest.approx(20 * STEP_S)}
