"""Experiments on a terminal, in Markdown, as JSON and as a plot."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from weft_bench.report.figures import commit
from weft_bench.report.page import document, draw, markdown, page, show, write
from weft_bench.studies.cells import Cell, Estimate, Measured, Values, cells, measured
from weft_bench.studies.experiment import Experiment, Headline, Plot, Score, Series, Table
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


def test_a_section_has_its_command_and_picture() -> None:
    text = markdown(document(_EXPERIMENT, _RUN, "weft bench run one"), "images/one.svg")
    assert re.search(r"\| a\\\|b +\| 2.00 \[1.00 to 3.00\] \|", text)
    assert "`weft bench run one`, simulated" in text
    assert "![One thing beside another](images/one.svg)" in text


def test_the_page_names_figures_of_other_commands() -> None:
    other = {"command": "weft bench x", "file": "x.json", "date": "2026-01-02T03", "machine": "m"}
    text = page(["## A\n"], [other])
    assert re.search(r"\| `weft bench x` +\| `x.json` +\| 2026-01-02 +\| m +\|", text)


def test_cells_round_trip() -> None:
    assert Measured.of_json(_RUN.to_json()).values == _RUN.values


def test_page_begins_with_the_summary() -> None:
    one = document(_EXPERIMENT, _RUN, "weft bench run one")
    text = page(["## A\n"], [], (), [one])
    assert text.index("## Summary") < text.index("## A")
    assert "over its own.\n  - published: 0.25\n  - **better:** x 0.5" in text


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


def test_page_lists_missing_measurements() -> None:
    assert "Not measured yet: `one`, `two`." in page([], [], ["one", "two"])
    assert "Not measured" not in page([], [])


def test_equal_figures_give_equal_plots(tmp_path: Path) -> None:
    line = Series("plas", [1.0, 2.0], [Estimate(1.0, 0.9, 1.3), Estimate(2.0, 1.8, 2.2)])
    plots = [Plot("load", "latency, s", [("left", [line]), ("right", [line])])]
    plots.append(Plot("load", "p95, s", [("alone", [line])], log_y=True))
    for name in ("a.svg", "b.svg"):
        draw(tmp_path / name, plots, "title")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "plas" in (tmp_path / "a.svg").read_text() or (tmp_path / "a.svg").stat().st_size > 5000
