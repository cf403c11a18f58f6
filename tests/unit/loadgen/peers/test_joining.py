"""Joining the plays of several commands."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from weft_bench.cli.peers import PeersOptions
from weft_bench.peers.joining import joined
from weft_bench.peers.scenes import Scene
from weft_bench.report.peers import Turn

SCENE = Scene("w", "w", 4, 1.0, 2, 1.0)
ALL = {"programs": 4.0, "errors": 0.0}


def turn(front: str, seed: int, *, mean: float = 1.0, rate: float = 0.5, late: float = 0.0) -> Turn:
    return Turn("w", front, seed, {"all": ALL | {"mean": mean, "late": late}}, 1.2, rate, 0.4)


@pytest.fixture
def written(tmp_path):
    """Return a function that writes figures to a file and returns its name."""

    def write(name: str, *turns: Turn, **options) -> str:
        rows = [{"name": name, "version": "1"} for name in dict.fromkeys(t.front for t in turns)]
        document = {
            "command": f"weft bench peers {name}",
            "configuration": asdict(PeersOptions("d", **options)) | {"fronts": rows},
            "turns": [asdict(one) for one in turns],
        }
        (tmp_path / name).write_text(json.dumps(document))
        return str(tmp_path / name)

    return write


def test_plays_and_rows_of_all_files_are_joined(written):
    files = written("a", turn("p", 0), turn("p", 1)), written("b", turn("q", 0), turn("p", 1))
    found = joined(PeersOptions("d", join=files))
    assert [(t.front, t.seed) for t in found.turns] == [("p", 0), ("p", 1), ("q", 0)]
    assert list(found.rows) == ["p", "q"]
    assert found.commands == ("weft bench peers a", "weft bench peers b")
    assert found.has(SCENE, 1.2, "p", 1)
    assert not found.has(SCENE, 0.8, "p", 1)
    assert not found.has(SCENE, 1.2, "q", 1)


def test_rate_is_that_of_the_earlier_plays_of_the_seed(written):
    found = joined(PeersOptions("d", join=(written("a", turn("p", 0, rate=0.7)),)))
    assert found.rate(SCENE, 1.2, 0) == 0.7
    assert found.rate(SCENE, 1.2, 1) == 0.0
    assert found.rate(SCENE, 0.8, 0) == 0.0


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([turn("p", 0, mean=2.0)], "other figures of w at load 1.2, p, seed 0"),
        ([turn("q", 0, rate=0.6)], "other programs"),
    ],
)
def test_other_figures_of_a_play_and_other_programs_are_refused(written, turns, message):
    files = written("a", turn("p", 0)), written("b", *turns)
    with pytest.raises(ValueError, match=message):
        joined(PeersOptions("d", join=files))


def test_other_engines_are_refused_unless_nothing_is_played(written):
    files = (written("a", turn("p", 0), slots=8),)
    with pytest.raises(ValueError, match="slots differ"):
        joined(PeersOptions("d", join=files))
    found = joined(PeersOptions("d", join=files, seeds=0))
    assert found.configuration["slots"] == 8
    both = (*files, written("b", turn("q", 0)))
    with pytest.raises(ValueError, match="slots differ"):
        joined(PeersOptions("d", join=both, seeds=0))


def test_late_plays_are_left_out_and_a_repeated_play_replaces_them(written):
    late = turn("p", 0, mean=9.0, late=0.02)
    first = written("a", late, turn("q", 0), turn("q", 1, late=0.02))
    found = joined(PeersOptions("d", join=(first,)))
    assert [(t.front, t.seed) for t in found.turns] == [("q", 0)]
    assert found.late == 2
    assert found.rate(SCENE, 1.2, 0) == 0.5
    second = written("b", turn("p", 0))
    for files in ((first, second), (second, first)):
        found = joined(PeersOptions("d", join=files))
        assert {(t.front, t.seed, t.slices["all"]["mean"]) for t in found.turns} == {
            ("p", 0, 1.0),
            ("q", 0, 1.0),
        }
        assert found.late == 1


def test_file_without_plays_is_refused(tmp_path):
    (tmp_path / "x").write_text("{}")
    with pytest.raises(ValueError, match="no plays"):
        joined(PeersOptions("d", join=(str(tmp_path / "x"),)))
