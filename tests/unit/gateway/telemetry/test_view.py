"""The rows of the live view."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from weft_engine.wire import CallContext, CallReport
from weft_gateway.api.board import state_of
from weft_gateway.calls.features.live import Seen
from weft_gateway.engine.described import engine_load
from weft_gateway.engine.engine_request import program_digest
from weft_gateway.model import Decision, Program, ProgramKey, Thread
from weft_gateway.model.load import EngineLoad
from weft_gateway.telemetry import view
from weft_gateway.telemetry.receipts import Receipt
from weft_gateway.telemetry.view import Query

KEY = ProgramKey("t", "run")
ROW = program_digest(KEY)
PROGRAM = Program(
    KEY, 10.0, critical_path_s=4.567, last_completion_s=70.0, calls=3, prompt_tokens=1000,
    cached_tokens=900, output_tokens=50,
)  # fmt: skip


def call(*, sent: bool = True, answers: bool = False, ahead: int | None = None) -> Any:
    claim = None if ahead is None else SimpleNamespace(ahead=ahead, sent_s=0.0)
    return SimpleNamespace(
        overhead_s=float(sent), first_byte_s=float(answers), claim=claim, placed=None
    )


def load(**parts: Any) -> EngineLoad:
    return EngineLoad(blocks=100, block_tokens=16, named=True, **parts)


@pytest.mark.parametrize(
    ("calls", "engine", "ended_s", "state"),
    [
        ([], None, None, ("tool gap", 70.0, 0)),
        ([], None, 75.0, ("ended", 75.0, 0)),
        ([call(sent=False, ahead=4)], load(), None, ("held", 80.0, 4)),
        ([call()], load(ahead={ROW: 2}), None, ("held", 80.0, 2)),
        ([call()], load(), None, ("queued", 80.0, 0)),
        ([call()], load(active=frozenset({ROW})), None, ("running", 80.0, 0)),
        ([call()], None, None, ("running", 80.0, 0)),
        # An engine without the plugin names no programs.
        ([call()], EngineLoad(waiting=3), None, ("queued", 80.0, 0)),
        ([call()], EngineLoad(), None, ("running", 80.0, 0)),
        ([call(sent=False), call(answers=True)], load(), None, ("running", 80.0, 0)),
        ([call(sent=False, ahead=1), call()], load(), None, ("queued", 80.0, 0)),
    ],
)
def test_the_state_of_a_program(
    calls: list[Any], engine: EngineLoad | None, ended_s: float | None, state: Any
) -> None:
    seen = Seen(KEY, ROW, since_s=80.0, ended_s=ended_s)
    seen.calls = calls  # type: ignore[assignment]
    assert state_of(seen, PROGRAM, engine) == state
    other = Program(KEY, 1.0, threads=(Thread("c", "main", "r0", 5.0),))
    assert state_of(Seen(KEY, ROW), other, None)[0] == "running"
    assert state_of(Seen(KEY, ROW), None, None)[0] == "ended"


def test_a_query_filters_and_sorts() -> None:
    rows = []
    for number, (tenant, hit) in enumerate([("t", 0.5), ("u", 0.9), ("t", None), ("t", 0.7)]):
        row: dict[str, Any] = dict.fromkeys(view.SORTS, 1.0) | {
            "row": f"row-{number}", "session": f"run-{number}", "tenant": tenant.upper(),
            "state": "tool gap", "model": "", "replica": "", "begun": 1.0, "spent": None,
        }  # fmt: skip
        rows.append((tenant, row | {"hit": hit}))

    def names(query: Query) -> list[str]:
        return [row["session"][-1] for row in view.selected(rows, query)[0]]

    assert names(Query()) == ["0", "1", "2", "3"]
    assert names(Query("t", sort="hit")) == ["0", "3", "2"]
    assert names(Query("t", sort="-hit", limit=2)) == ["3", "0"]
    assert names(Query(text="RUN-1")) == ["1"]
    assert view.selected(rows, Query("t", limit=1))[1]["tool gap"] == 3
    for sort in view.SORTS:
        assert len(names(Query(sort=sort))) == 4


def test_a_timeline_has_the_parts_of_each_call() -> None:
    def receipt(at_s: float, total_s: float, first_s: float, outcome: str = "ok") -> Receipt:
        decision = Decision("r0", False, frozenset(), "")
        made = Receipt("q", "c", KEY, "main", "", "", "chat", "m", at_s, decision, "r0", 0, None)
        made.total_s, made.first_byte_s, made.outcome = total_s, first_s, outcome
        return made

    streamed = receipt(100.0, 10.0, 6.0)
    streamed.context = CallContext("c", "p")
    streamed.memory_wait_s = 2.0
    streamed.report = CallReport("c", waiting_s=3.0)
    line = view.timeline([streamed, receipt(115.0, 4.0, 4.0), receipt(119.5, 0.0, 0.0, "")], 120.0)
    ((first, whole, running),) = [lane["calls"] for lane in line["lanes"]]
    parts = ("held_s", "queued_s", "prefill_s", "decode_s")
    assert [first[part] for part in parts] == [2.0, 1.0, 3.0, 4.0]
    assert [whole[part] for part in parts] == [0.0, 0.0, 0.0, 4.0]
    assert [running[part] for part in parts] == [0.0, 0.5, 0.0, 0.0]
    assert (line["from"], line["to"], running["outcome"]) == (100.0, 120.0, "in_flight")
    (drawn,) = view.spans(line, 200.0)
    assert [(at, length, part) for at, length, part, _ in drawn][:5] == [
        (0.0, 20.0, "held"), (20.0, 10.0, "queued"), (30.0, 30.0, "prefill"),
        (60.0, 40.0, "decode"), (100.0, 50.0, "gap"),
    ]  # fmt: skip
    assert view.timeline([], 5.0)["lanes"] == []


def test_the_load_of_an_engine() -> None:
    metrics = (
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="512"} 1.0\n'
        'vllm:num_requests_running{engine="0"} 3.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 2.5e-01\n'
        'vllm:generation_tokens_total{engine="0"} 1234.0\n'
    )
    programs = {"running": ["a", 3], "resident": ["a", "b"], "held": {"c": 2, "d": "x"}}
    found = engine_load(metrics, {"weft": {}, "engines": [{"programs": programs}, "bad"]})
    assert found.tokens == 8192
    assert (found.running, found.usage, found.generated, found.named) == (3, 0.25, 1234.0, True)
    assert (found.active, found.residents) == (frozenset("a"), frozenset("ab"))
    assert found.ahead == {"c": 2}
    assert engine_load("", None) == EngineLoad()


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.44, "0.4 s"), (9.96, "10 s"), (59.7, "1 m 0 s"), (7500, "2 h 5 m")],
)
def test_durations_are_for_people(amount: float, text: str) -> None:
    assert view.seconds(amount) == text


def test_counts_are_for_people() -> None:
    assert [view.short(n) for n in (None, 950, 12_345, 3_400_000)] == ["-", "950", "12k", "3.4M"]
    held = {"state": "held", "ahead": 5, "behind": ["a", "b"], "open": 1}
    assert view.about(held) == "held for memory behind 5 programs: a, ..."
