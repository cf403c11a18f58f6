"""Experiments on a terminal, in Markdown and as JSON."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from weft_bench.report.figures import commit
from weft_bench.report.page import document, markdown, show, write
from weft_bench.studies.cells import Cell, Measured, Values, cells, measured
from weft_bench.studies.experiment import Experiment, Headline, Score, Table
from weft_bench.studies.store import ROOT


def _measure(cell: Cell) -> Values:
    return {"x": 1.0}


def _tables(found: Measured) -> list[Table]:
    return [Table("what came out", ("order", "x"), [("a|b", str(found.estimate("x")))])]


_EXPERIMENT = Experiment(
    name="one",
    title="One thing beside another",
    source="A paper, Figure 1",
    published="twice as much",
    cells=lambda quick: cells(3, a=1),
    measure=_measure,
    tables=_tables,
    notes=("ours is made for this",),
    headline=lambda found: Headline("over its own", [Score("x", "0.5", "won")], "0.25"),
)
_RUN = measured((cell, {"x": 1.0 + cell.seed}) for cell in cells(3, a=1))


def test_document_has_every_cell_and_its_command(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "one.json", document(_EXPERIMENT, _RUN, "weft bench run one"))
    found = json.loads((tmp_path / "deep" / "one.json").read_text())
    assert found["command"] == "weft bench run one"
    assert found["kind"] == "simulated"
    assert found["order"] == _EXPERIMENT.order
    assert found["headline"]["scores"][0]["outcome"] == "won"
    assert found["commit"] == commit(ROOT)
    assert [cell["values"]["x"] for cell in found["cells"]] == [1.0, 2.0, 3.0]
    assert found["tables"][0]["rows"] == [["a|b", "2.00 [1.00 to 3.00]"]]


def test_terminal_shows_simulated_and_published_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(document(_EXPERIMENT, _RUN, "weft bench run one"))
    text = capsys.readouterr().out
    assert "simulated: what came out" in text
    assert "2.00 [1.00 to 3.00]" in text
    assert "ours is made for this" in text
    assert "published (A paper, Figure 1): twice as much" in text


def test_a_section_has_its_command_and_tables() -> None:
    text = markdown(document(_EXPERIMENT, _RUN, "weft bench run one"))
    assert text.startswith("## One thing beside another\n")
    assert re.search(r"\| a\\\|b +\| 2.00 \[1.00 to 3.00\] \|", text)
    assert "`weft bench run one`, simulated" in text
    assert markdown(document(_EXPERIMENT, _RUN, "weft bench run one"), level=1).startswith("# One")


def test_cells_round_trip() -> None:
    assert Measured.of_json(_RUN.to_json()).values == _RUN.values


def test_document_names_the_measured_commit(tmp_path: Path) -> None:
    assert commit(tmp_path) == ""

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True)

    git("init", "-q")
    code, figures = tmp_path / "a.py", tmp_path / "a.json"
    code.write_text("x = 1\n")
    git("add", "-A")
    git("commit", "-q", "-m", "One")
    name = commit(tmp_path)
    # Files that a measurement writes do not change the measured code.
    figures.write_text("{}")
    assert commit(tmp_path) == name
    assert 7 <= len(name) <= 12
    code.write_text("x = 2\n")
    assert commit(tmp_path) == f"{name} with changes"
    found = {**document(_EXPERIMENT, _RUN, "weft bench run one"), "commit": f"{name} with changes"}
    assert f", commit {name} with changes, " in markdown(found)
