"""The bench of placement."""

from __future__ import annotations

import json

from weft_bench.cli.parts import PlacingOptions
from weft_bench.micro.placing import measure, run


def test_programs_that_share_a_prompt_are_placed_by_it():
    placed = measure(36_000, 2, replicas=3, rounds=4)
    assert placed["marks"] >= 36_000 // 2048
    assert 0 <= placed["read_p50"] <= placed["read_p99"]
    assert 0 <= placed["choose_p50"] <= placed["choose_p99"]


def test_the_command_shows_a_line_for_each_prompt_and_writes_figures(tmp_path, capsys):
    file = tmp_path / "placing.json"
    assert run(PlacingOptions(rounds=2, json_file=str(file))) == 0
    assert "36000" in capsys.readouterr().out
    document = json.loads(file.read_text())
    assert document["command"] == "weft bench placing"
    units = [figure["unit"] for figure in document["figures"]]
    assert (units.count("s"), units.count("marks")) == (12, 3)
