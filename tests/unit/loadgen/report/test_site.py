"""The results page and the pages behind it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.peer_files import document, turn
from weft_bench.report.page import document as experiment_document
from weft_bench.report.page import write
from weft_bench.report.results.site import write_site
from weft_bench.studies.cells import Cell, Estimate, Measured, Values, cells, measured
from weft_bench.studies.experiment import (
    Claim,
    Experiment,
    Goal,
    Headline,
    Plot,
    Table,
    less,
    more,
)
from weft_bench.studies.show import lines


def _measure(cell: Cell) -> Values:
    return {}


def _headline(found: Measured) -> Headline:
    ratio = found.where(order="ours").ratio("x", found.where(order="its"))
    return Headline("x over its; less is better", [less("field (its)", ratio)])


def _claims(found: Measured) -> list[Claim]:
    score = replace(more("", Estimate(1.2, 1.1, 1.3, p=0.02)), shown="1.20")
    return [Claim("sharegpt: load, plas", "mlfq", score, "up to 2", 2.0, {"plas": 0.3})]


_ONE = Experiment(
    name="one",
    title="One thing's title",
    source="A paper, [page](workloads.md)",
    published="",
    cells=lambda quick: cells(3),
    measure=_measure,
    tables=lambda found: [Table("times", ("order", "x"), [("ours", "1")])],
    plots=lambda found: [Plot("x", "y", [("p", lines(found, "load", "order", "x"))], file="-a")],
    headline=_headline,
    claims=_claims,
    first_seed=100,
    goals=lambda found: [Goal("x over its:", Estimate(1.5, 1.4, 1.6), 0.7)] if found else [],
)
# Worse in each seed, by nearly the same factor.
_CELLS = measured(
    (cell, {"x": (1.5 if cell["order"] == "ours" else 1.0) * (1 + cell.seed / 1000)})
    for order in ("ours", "its")
    for cell in cells(5, order=order, load=1)
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with results and docs with all pages. Tests do not change it."""
    tmp_path = tmp_path_factory.mktemp("site")
    results = tmp_path / "results"
    write(results / "experiments" / "one.json", experiment_document(_ONE, _CELLS, "weft bench x"))
    plays = [
        turn(front, seed, value)
        for front, value in (("weft/resident", 6.0), ("a", 10.0))
        for seed in (300, 301, 302)
    ]
    more = {"command": "weft bench peers", "machine": "m", "tables": [], "findings": []}
    more |= {"title": "Peers", "source": "s", "published": ""}
    _write(results / "peers-emulated.json", document(*plays) | more)
    late = turn("b", 300, 5.0)
    late["slices"]["all"]["late"] = 0.02
    _write(results / "peers-emulated-2.json", document(late) | more)
    missed = {"title": "Tenants", "kind": "real", "source": "s", "published": "", "tables": []}
    missed |= {"command": "weft bench tenants", "date": "2026-01-02", "machine": "m"}
    _write(
        results / "tenants.json", missed | {"findings": ["loss: 2.00 of it", "missed: too slow"]}
    )
    two = replace(_ONE, name="two", title="Two")
    write_site(tmp_path / "docs", results, {"one": _ONE, "two": two}, ["a", "b", "absent"])
    return tmp_path


@pytest.fixture
def docs(written: Path) -> Path:
    """Return the docs folder. Tests do not change it."""
    return written / "docs"


def _write(file: Path, found: dict[str, Any]) -> None:
    file.write_text(json.dumps(found))


def _section(docs: Path, title: str) -> str:
    text = (docs / "results.md").read_text()
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_headline_reads_all_files_and_names_missed_goals(docs: Path) -> None:
    text = _section(docs, "Weft beside other proxies")
    assert "a (2), b (1)" in text
    assert "300 to 302" in text
    # The seed with the best peer of the second file is slower than it.
    assert "**mean, goal 0.70:** 1 missed" in text


def test_losses_are_listed_with_figures(docs: Path) -> None:
    text = _section(docs, "Losses")
    assert "Worse after the correction" in text
    assert "[One thing's title](results/one.md), simulated: x over its; less is better" in text
    assert "**field (its)** 50% more: 1.50" in text
    assert "few plays:\n\n- [Tenants](results/tenants.md): 2.00 of it\n" in text
    assert "Missed goals:\n\n- [Tenants](results/tenants.md): too slow" in text
    goal = "x over its: 1.50 (1.40 to 1.60), goal at most 0.7"
    assert f"[One thing's title](results/one.md): {goal}" in text
    assert f"missed: {goal}" in (docs / "results" / "one.md").read_text()


def test_claims_stand_beside_published_figures(docs: Path) -> None:
    text = _section(docs, "Agentix's own claims")
    assert "| sharegpt: load, plas | 1.20; published up to 2: not reached | plas 0.30 |" in text
    assert "Of 1 claims with a number: 1 not reached." in text


def test_unknown_names_all_gaps(docs: Path) -> None:
    text = _section(docs, "Unknown")
    assert "No figure here is from a GPU" in text
    assert "Not measured on emulated engines: `absent`." in text
    assert "Not measured yet: `two`." in text
    assert "In 1 of 7 emulated plays, the machine" in text


def test_old_anchors_lead_to_the_pages(docs: Path) -> None:
    index = _section(docs, "All figures")
    assert '<a id="one-things-title"></a>[One thing\'s title](results/one.md) | simulated' in index
    assert "100 to 104" in index
    assert "[Tenants](results/tenants.md)" in index


def test_pages_behind_have_the_tables_and_links_of_their_folder(docs: Path) -> None:
    one = (docs / "results" / "one.md").read_text()
    assert one.startswith("<!-- `weft bench page`")
    assert "# One thing's title" in one
    assert "[page](../workloads.md)" in one
    assert "![One thing's title](../images/results/one-a.svg)" in one
    assert "- **worse:** field (its) 1.50" in one
    assert (docs / "images/results/one-a.svg").is_file()
    peers = (docs / "results/peers-emulated.md").read_text()
    assert "`results/peers-emulated-2.json`, 2026-01-01, m:" in peers
    assert "w, weft/resident over the others, on the same programs" in peers
    assert "| `results/peers-emulated-2.json` |" in (docs / "results/sources.md").read_text()


def test_pictures_are_on_the_page(docs: Path) -> None:
    assert "(images/results/forest.svg)" in _section(docs, "All ratios on fresh seeds")
    assert (docs / "images/results/forest.svg").is_file()
    assert "Not measured yet." in _section(docs, "Latency against load")


def test_page_is_the_same_for_the_same_figures(docs: Path, written: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    write_site(again, written / "results", {"one": _ONE, "two": replace(_ONE, name="two")}, [])
    for file in ("results/one.md", "images/results/forest.svg"):
        assert (again / file).read_bytes() == (docs / file).read_bytes()


def test_pages_and_pictures_without_figures_are_removed(tmp_path: Path) -> None:
    page, picture = tmp_path / "results/one.md", tmp_path / "images/results/one-a.svg"
    for file in (page, picture):
        file.parent.mkdir(parents=True)
        file.write_text("")
    write_site(tmp_path, tmp_path / "figures", {"one": _ONE}, [])
    assert not page.exists()
    assert not picture.exists()
    assert (tmp_path / "results/sources.md").is_file()


def test_without_figures_the_page_says_so(tmp_path: Path) -> None:
    write_site(tmp_path / "docs", tmp_path / "results", {"one": _ONE}, [])
    text = (tmp_path / "docs" / "results.md").read_text()
    assert text.count("Not measured yet") >= 4
    assert "not measured" in text.partition("**Gain**")[2].partition("\n")[0]
