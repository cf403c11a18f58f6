"""The rows of the live view."""

from __future__ import annotations

from typing import Any

import pytest
from weft_engine.wire import CallContext, CallReport
from weft_gateway.engine.described import engine_load
from weft_gateway.model import Decision, Program, ProgramKey, Thread
from weft_gateway.model.load import EngineLoad
from weft_gateway.telemetry import view
from weft_gateway.telemetry.receipts import Receipt
from weft_gateway.telemetry.view import Facts, Query, Request

KEY = ProgramKey("t", "run")
ROW = "row-1"
PROGRAM = Program(
    KEY, 10.0, critical_path_s=4.567, last_completion_s=70.0, calls=3, prompt_tokens=1000,
    cached_tokens=900, output_tokens=50,
)  # fmt: skip


def request(
    *, sent: bool = True, answers: bool = False, tokens: int = 0, ahead: int = 0
) -> Request:
    return Request(80.0, sent, answers, tokens, ahead, "r0")


def load(**parts: Any) -> EngineLoad:
    return EngineLoad(blocks=100, block_tokens=16, named=True, **parts)


@pytest.mark.parametrize(
    ("requests", "engine", "ended_s", "state"),
    [
        ([], None, None, ("tool gap", 70.0, 0)),
        ([], None, 75.0, ("ended", 75.0, 0)),
        ([request(sent=False, ahead=4)], load(), None, ("held", 80.0, 4)),
        ([request()], load(ahead={ROW: 2}), None, ("held", 80.0, 2)),
        ([request()], load(), None, ("queued", 80.0, 0)),
        ([request()], load(active=frozenset({ROW})), None, ("running", 80.0, 0)),
        ([request()], None, None, ("running", 80.0, 0)),
        # An engine without the plugin names no programs.
        ([request()], EngineLoad(waiting=3), None, ("queued", 80.0, 0)),
        ([request()], EngineLoad(), None, ("running", 80.0, 0)),
        ([request(sent=False), request(answers=True)], load(), None, ("running", 80.0, 0)),
    ],
)
def test_the_state_of_a_program(
    requests: list[Request], engine: EngineLoad | None, ended_s: float | None, state: Any
) -> None:
    facts = Facts(KEY, ROW, "team", requests=requests, ended_s=ended_s)
    row = view.program_row(facts, PROGRAM, engine)
    assert (row["state"], row["since"], row["ahead"]) == state


def test_a_row_has_shares_and_names_only_of_its_tenant() -> None:
    facts = Facts(
        KEY, ROW, "team", context=400, requests=[request(sent=False, tokens=800, ahead=5)],
        residents=["a", "run", "b"], spent={"text": "1 of 2", "share": 0.5},
    )  # fmt: skip
    row = view.program_row(facts, PROGRAM, load(residents=frozenset({ROW})))
    assert (row["context"], row["share"], row["hit"], row["path_s"]) == (800, 0.5, 0.9, 4.57)
    assert (row["resident"], row["behind"], row["spent"]["share"]) == (True, ["a", "b"], 0.5)
    assert view.about(row) == "held for memory behind 5 programs: a, ..."
    other = Program(KEY, 1.0, threads=(Thread("c", "main", "r0", 5.0),))
    assert view.program_row(Facts(KEY, ROW, "team"), other, None)["state"] == "running"
    assert view.program_row(Facts(KEY, ROW, "team"), None, None)["state"] == "ended"


def test_a_query_filters_sorts_and_pages() -> None:
    rows = []
    for number, (tenant, hit) in enumerate([("t", 0.5), ("u", 0.9), ("t", None), ("t", 0.7)]):
        key = ProgramKey(tenant, f"run-{number}")
        row = view.program_row(Facts(key, f"row-{number}", tenant.upper()), PROGRAM, None)
        rows.append((tenant, row | {"hit": hit}))

    def names(query: Query) -> list[str]:
        return [row["session"][-1] for row in view.selected(rows, query)[0]]

    assert names(Query()) == ["0", "1", "2", "3"]
    assert names(Query("t", sort="hit")) == ["0", "3", "2"]
    assert names(Query("t", sort="-hit", limit=2)) == ["3", "0"]
    assert names(Query(text="RUN-1")) == ["1"]
    assert names(Query(sort="session", offset=3)) == ["3"]
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
    row = view.engine_row("r0", "serving", 4, 256, found, 99.6)
    assert (row["residents"], row["held"], row["free"], row["pace"]) == (2, 1, 384, 100)
    assert engine_load("", None) == EngineLoad()


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.44, "0.4 s"), (9.96, "10 s"), (59.7, "1 m 0 s"), (7500, "2 h 5 m"), (None, "-")],
)
def test_durations_are_for_people(amount: float | None, text: str) -> None:
    assert view.seconds(amount) == text


def test_counts_are_for_people() -> None:
    assert [view.short(n) for n in (None, 950, 12_345, 3_400_000)] == ["-", "950", "12k", "3.4M"]
    assert view.percent(0.456) == "46%"
