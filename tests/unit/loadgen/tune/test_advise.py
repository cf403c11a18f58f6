"""Records: files in other formats, the play beside that of the sessions themselves, and advice."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner
from weft_bench.tune import advise
from weft_bench.tune.advise import Case, verdict
from weft_bench.tune.record import record
from weft_bench.tune.recorded import Line, latest, recorded
from weft_bench.workloads.cutting import ReadyCall, ReadyProgram
from weft_bench.workloads.schema import Part, TraceCall
from weft_bench.workloads.traces.files import read_trace

PRESET = "8b-h100"
FIRST, MORE, ANSWER = 2048, 1024, 50


def session(number: int, calls: int = 5) -> ReadyProgram:
    """A session whose prompts grow, and begin like those of all sessions."""
    parts = [Part("system", 1024, "system"), Part(f"s{number}", FIRST - 1024, "system")]
    made = []
    for call in range(calls):
        prompt = (*parts, *(Part(f"s{number}/{n}", MORE, "tool") for n in range(call)))
        asked = TraceCall(output_tokens=ANSWER, gap_s=0.5, parts=prompt)
        made.append(ReadyCall(asked, FIRST + call * MORE, ANSWER))
    return ReadyProgram(f"s{number}", tuple(made), False, False, 0.1 * number)


def journal(sessions: list[ReadyProgram], case: Case) -> list[Line]:
    """The lines of a gateway that serves these sessions."""
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.world import Setup, simulate

    shapes = advise.shapes(PRESET, case)
    setup = Setup(shapes, EngineSettings(case.order, tags=True))
    played = simulate(sessions, [one.arrival_s or 0.0 for one in sessions], setup)
    return [
        Line(
            n, f"{one.program}/{one.number}", one.program, "m", "k", 1000 + one.arrival_s,
            one.end_s - one.arrival_s, "ok", one.prompt_tokens, one.cached_tokens,
            one.output_tokens, None, thread="main", replica=one.replica,
            first_byte_s=one.first_token_s - one.arrival_s,
            continues=f"{one.program}/{one.number - 1}" if one.number else None,
            common_tokens=one.prompt_tokens - MORE if one.number else None,
            block_tokens=None if one.number else 512,
            blocks=() if one.number else ("a", "b", one.program, f"{one.program}+"),
        )
        for n, one in enumerate(sorted(played.calls, key=lambda one: one.end_s))
    ]  # fmt: skip


def programs(lines: list[Line]) -> list[ReadyProgram]:
    return advise.fitting(recorded(latest(lines, 0)), 100_000)


@pytest.mark.slow
@pytest.mark.engine
def test_a_played_record_has_the_figures_of_its_sessions() -> None:
    sessions = [session(number) for number in range(16)]
    # Seven of the contexts fit.
    lines = journal(sessions, Case("fcfs", 1, 0.1))
    for order in ("fcfs", "resident"):
        case = Case(order, 1, 0.1)
        direct = advise.play(sessions, {}, PRESET, case)
        again = advise.play(programs(lines), {}, PRESET, case)
        for figure in ("mean", "p95", "ttft_mean", "hit_rate", "fit"):
            assert again[figure] == pytest.approx(direct[figure], rel=0.03), figure
        assert 0 < direct["fit"] < 1


@pytest.mark.slow
@pytest.mark.engine
def test_advice_is_a_table_and_a_sentence(tmp_path: Path) -> None:
    lines = journal([session(number) for number in range(16)], Case("fcfs", 1, 0.05))
    file = tmp_path / "record.jsonl"
    failed = msgspec.structs.replace(lines[0], call="failed", outcome="error", prompt_tokens=None)
    file.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in (*lines, failed)))
    options = ["--preset", PRESET, "--orders", "fcfs,resident", "--replicas", "2", "--cache", "0.1"]
    found = CliRunner().invoke(advise.advise, [str(file), *options])
    assert found.exit_code == 0, found.output
    assert "Recorded: 16 programs with 80 calls, mean " in found.output
    rows = [line.split("|")[1:5] for line in found.output.splitlines() if line.startswith("| ")]
    assert [[cell.strip() for cell in row] for row in rows[1:]] == [
        ["fcfs", "1", "1", "now"], ["fcfs", "2", "0.1", ""], ["resident", "2", "0.1", ""],
    ]  # fmt: skip
    part = CliRunner().invoke(advise.advise, [str(file), *options, "--calls", "60"])
    assert "20 earlier calls are left out" in part.output
    for wrong, status, reason in (
        (["--preset", "unknown"], 1, "unknown"),
        (["--preset", PRESET, "--model", "other"], 1, "m (80 calls)"),
        (["--preset", PRESET, "--cache", "0.001"], 1, "no call fits"),
        (["--preset", PRESET, "--orders", "none"], 2, "none"),
    ):
        refused = CliRunner().invoke(advise.advise, [str(file), *wrong])
        assert refused.exit_code == status
        assert reason in refused.output


def test_the_verdict_names_the_best_order_and_the_best_of_all() -> None:
    now = Case("fcfs", 1, 1.0)
    found = {
        now: {"mean": 100.0}, Case("resident", 1, 1.0): {"mean": 80.0},
        Case("resident", 2, 1.0): {"mean": 40.0}, Case("fcfs", 2, 2.0): {"mean": 62.0},
    }  # fmt: skip
    assert verdict(found, now) == (
        "With the order resident and 1 replica, programs would finish in 0.80 of the time now. "
        "With the order resident and 2 replicas, programs would finish in 0.40 of the time now."
    )
    assert verdict({now: {"mean": 1.0}, Case("resident", 1, 1.0): {"mean": 0.99}}, now) == (
        "Nothing here is faster than the order fcfs and 1 replica."
    )


def lines() -> list[Line]:
    """A program with a sub-agent, and a program that begins alike."""
    asked = {"model": "m", "kind": None, "outcome": "ok", "cached_tokens": 0, "deadline_s": None}
    first = {"blocks": ("a", "b"), "block_tokens": 512, "prompt_tokens": 1100, "output_tokens": 9}
    next_ = {"prompt_tokens": 1500, "output_tokens": 7, "common_tokens": 1100, "continues": "p1"}
    made = [
        dict(call="p1", program="p", thread="main", arrived_at=10.0, total_s=2.0, **first),
        dict(call="p2", program="p", thread="sub", arrived_at=12.5, total_s=1.0, **next_),
        dict(call="p3", program="p", thread="main", arrived_at=14.0, total_s=1.0, **next_),
        dict(call="q1", program="q", thread="main", arrived_at=16.0, total_s=1.0, **first),
    ]
    return [Line(n=n, **asked, **one) for n, one in enumerate(made)]


def test_a_record_converts_to_the_formats_of_other_benches(tmp_path: Path) -> None:
    file, rows, folder = (tmp_path / name for name in ("record.jsonl", "trace.jsonl", "weka"))
    file.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines()))
    for out, name in ((rows, "mooncake"), (folder, "weka")):
        line = [str(out), "--convert", str(file), "--format", name]
        done = CliRunner().invoke(record, line)
        assert (done.exit_code, done.output) == (0, f"{out}: 4 calls of 2 programs\n")
        # It overwrites nothing.
        assert CliRunner().invoke(record, line).exit_code == 1
    found = [json.loads(row) for row in rows.read_text().splitlines()]
    assert [row["timestamp"] for row in found] == [0, 2500, 4000, 6000]
    assert [row["input_length"] for row in found] == [1100, 1500, 1500, 1100]
    assert [row["hash_ids"] for row in found] == [[1, 2, 3], [1, 2, 4], [1, 2, 5], [1, 2, 6]]
    # The bench reads it, too.
    assert len(list(read_trace(rows, 0)[1])) == 4
    one, two = (json.loads(path.read_text()) for path in sorted(folder.iterdir()))
    assert (one["id"], two["id"], one["block_size"]) == ("p", "q", 64)
    main, agent, later = one["requests"]
    assert (main["t"], agent["t"], later["t"]) == (0.0, 2.5, 4.0)
    assert (agent["type"], len(agent["requests"]), agent["duration_ms"]) == ("subagent", 1, 1000)
    assert main["hash_ids"][:17] == later["hash_ids"][:17]
    assert len(later["hash_ids"]) == 24


def test_a_file_that_is_no_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"timestamp": 1}\n')
    for name, reason in (("other", "no record"), ("absent", "cannot be read")):
        line = [str(tmp_path / name), "--preset", PRESET]
        found = CliRunner().invoke(advise.advise, line)
        assert found.exit_code == 1
        assert reason in found.output
