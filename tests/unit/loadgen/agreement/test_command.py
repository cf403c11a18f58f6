"""`weft bench fit --agreement`: options and results, without an engine."""

from __future__ import annotations

import json

import pytest
from support.agreement import pair, played
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.agreement import command
from weft_bench.agreement.compare import Delay
from weft_bench.agreement.report import Agreement
from weft_bench.cli.studies import FitOptions
from weft_bench.stack.local import StackError

DILATIONS = {2: played(4.0, busy_s=8.0), 4: played(4.04, busy_s=8.1)}


@pytest.mark.parametrize(("emulated", "status"), [(4.2, 0), (4.5, 1)])
def test_results_have_tables_and_cells_and_a_missed_goal_gives_1(
    emulated, status, tmp_path, monkeypatch, capsys
):
    pairs = {"fcfs": pair([emulated], [[4.0, 4.1]]), "plas": pair([2.0], [[2.0, 2.1]])}
    monkeypatch.setattr(
        command, "_compare", lambda *_: {"warm": Agreement(Delay(0.01), pairs, 0.1)}
    )
    monkeypatch.setattr(command, "_dilations", lambda *_: DILATIONS)
    file = tmp_path / "agreement.json"
    assert command.run(FitOptions(json_file=str(file))) == status
    found = json.loads(file.read_text())
    assert found["command"].startswith("weft bench fit --agreement --cases plentiful,")
    assert [len(table["rows"]) for table in found["tables"]] == [2, 1, 2]
    assert [cell.get("order") for cell in found["cells"]] == ["fcfs", "plas", None, None]
    assert found["cells"][0]["virtual"][0][1]["program_s"] == 4.1
    assert ("missed: warm, fcfs: " in capsys.readouterr().err) == bool(status)


def test_a_stack_that_does_not_start_gives_2(monkeypatch, capsys):
    def refuse(*_):
        raise StackError("vLLM is missing")

    monkeypatch.setattr(command, "_compare", refuse)
    assert command.run(FitOptions()) == 2
    assert "vLLM is missing" in capsys.readouterr().err


def test_an_unknown_case_is_refused_before_anything_starts():
    found = CliRunner().invoke(cli.bench, ["fit", "--agreement", "--cases", "cold"])
    assert found.exit_code == 2
    assert "plentiful, scarce, swap, warm, recorded" in " ".join(
        found.output.replace("│", " ").split()
    )


def test_the_recorded_case_needs_the_recorded_workloads():
    found = CliRunner().invoke(cli.bench, ["fit", "--agreement", "--cases", "recorded"])
    assert found.exit_code == 2
    assert "needs --data" in found.output
