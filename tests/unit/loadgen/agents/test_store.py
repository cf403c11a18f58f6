"""Plays that several runs store."""

from __future__ import annotations

import json

import pytest
from weft_bench.agents.store import Play, Store

SCENE = {"workload": "coding_sessions", "calls": 12}


def play(system: str = "resident", seed: int = 0, times: float = 2.0) -> Play:
    return Play("virtual", "8b-h100", system, 0.0, times, seed)


def test_a_file_keeps_plays_and_tells_what_is_missing(tmp_path):
    file = str(tmp_path / "curve.json")
    store = Store.of(file, SCENE)
    store.fits["8b-h100"] = 5
    store.commands.append("weft bench agents")
    store.add(play(), {"mean": 3.0})
    again = Store.of(file, SCENE)
    assert again.missing([play(), play(seed=1)]) == [play(seed=1)]
    assert (again.fits, again.commands) == ({"8b-h100": 5}, ["weft bench agents"])
    assert again.measured([]).where(system="resident").estimate("mean").middle == 3.0


def test_plays_of_another_scene_are_refused(tmp_path):
    file = tmp_path / "curve.json"
    Store.of(str(file), SCENE).add(play(), {"mean": 3.0})
    with pytest.raises(ValueError, match="another calls"):
        Store.of(str(file), {**SCENE, "calls": 24})
    file.write_text(json.dumps({"figures": []}))
    with pytest.raises(ValueError, match="has no plays of `weft bench agents`"):
        Store.of(str(file), SCENE)
    # The check of an option creates an empty file.
    file.write_text("")
    assert Store.of(str(file), SCENE).plays == {}


def test_systems_have_the_order_of_tables():
    store = Store("", SCENE)
    for name in ("b", "z", "a"):
        store.add(play(name), {"mean": 1.0})
    assert store.measured(["z", "a"]).levels("system") == ["z", "a", "b"]
