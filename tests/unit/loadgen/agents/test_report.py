"""Tables and the picture of a curve."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from weft_bench.agents.report import About, page, svg, tables
from weft_bench.agents.store import Play, Store
from weft_bench.agents.systems import CLAIRVOYANT, ENDLESS, OURS, PROGRAMS, STOCK

FIGURES = (
    "p95", "output_per_s", "ttft_mean", "ttft_p95", "hit_rate",
    "interactivity", "slow_tail",
)  # fmt: skip
MEANS = {OURS: 400.0, STOCK: 1000.0, CLAIRVOYANT: 320.0, ENDLESS: 300.0}


def curve() -> Store:
    store = Store("", {})
    for engines, system, mean in (
        *(("virtual", name, mean) for name, mean in MEANS.items()),
        ("emulated", OURS, 500.0),
        ("emulated", PROGRAMS, 800.0),
    ):
        for times in (1.0, 4.0):
            for seed in (0, 1):
                values = dict.fromkeys(FIGURES, 1.0)
                values |= {"mean": (1 + seed) * mean * times, "calls_per_s": 1 / times}
                store.add(Play(engines, "8b-h100", system, 0.0, times, seed), values)
    return store


def test_tables_have_ratios_to_the_best_rival_and_to_bounds():
    ours, figures, real, _, agreement = tables(curve().measured([OURS]))
    assert ours.title.startswith("virtual, 8b-h100")
    row = dict(zip(ours.columns, ours.rows[-1], strict=True))
    assert (row["times"], row["seeds"], row["best rival"]) == ("4", "2", STOCK)
    assert (row["mean"], row["recovered"]) == ("0.400", "0.857")
    assert row["mean over clairvoyant"] == "1.25"
    assert row["calls/s over own peak"] == "0.250"
    assert len(figures.rows) == 8
    assert dict(zip(real.columns, real.rows[0], strict=True))["best rival"] == PROGRAMS
    # Virtual time over emulated engines.
    assert agreement.rows[0][2:4] == (OURS, "0.800")


def test_the_picture_has_a_line_for_each_system_and_marks_what_fits():
    found = curve().measured([OURS]).where(engines="virtual")
    text = svg("Agents <at once>", "note", found)
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}path")) == 2 * len(MEANS)
    assert text.count('class="fits"') == 2
    assert ">Weft<" in text
    with pytest.raises(ValueError, match="two points"):
        svg("t", "n", found.where(times=1.0))


def test_the_page_names_commands_systems_and_figures():
    made = list(tables(curve().measured([OURS])))
    told = {"commands": ["weft bench agents"], "date": "2026-11-28T00", "machine": "m"}
    text = page(About("Agents at once", told, ["resident: Weft"]), made)
    assert text.startswith("# Agents at once\n\n`weft bench agents`")
    assert "- resident: Weft" in text
    assert "best rival |" in text
