"""Engines by name and from files."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from weft_engine.emulated.engines import find, shapes
from weft_engine.emulated.presets import preset


def test_replicas_take_the_named_engines_in_turn():
    found = shapes("8b-a100, 8b-l40", 3)
    assert found == [preset("8b-a100"), preset("8b-l40"), preset("8b-a100")]
    small = shapes("8b-a100", 1, slots=3, kv_blocks=50)[0]
    assert (small.slots, small.kv_blocks, small.cost) == (3, 50, found[0].cost)


def test_an_engine_is_written_and_read_back_without_loss(tmp_path):
    file = tmp_path / "engine.json"
    file.write_text(json.dumps({"engine": asdict(preset("70b-h100"))}))
    assert find(str(file)) == preset("70b-h100")


@pytest.mark.parametrize("text", ["{}", "nothing", '{"engine": {"slots": 1}}', '{"engine": 3}'])
def test_a_file_without_an_engine_is_refused(tmp_path, text):
    file = tmp_path / "engine.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="does not contain an engine"):
        find(str(file))


def test_empty_name_is_no_engine():
    with pytest.raises(ValueError, match="no engine given"):
        shapes(" ,", 1)
    with pytest.raises(ValueError, match="unknown preset"):
        shapes("13b-a100", 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"slots": 0}, r"Expected `int` >= 1 - at `\$.slots`"),
        ({"kv_blocks": -4}, "kv_blocks"),
        ({"step_tokens": 1.5}, "step_tokens"),
        ({"context": "4096"}, "context"),
        ({"call_s": -1.0}, "call_s"),
    ],
)
def test_an_engine_without_room_is_refused(tmp_path, change, why):
    file = tmp_path / "engine.json"
    file.write_text(json.dumps({"engine": {**asdict(preset("8b-a100")), **change}}))
    with pytest.raises(ValueError, match=why):
        find(str(file))
