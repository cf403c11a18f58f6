"""Weft beside the best other proxy, from several files."""

from __future__ import annotations

from typing import Any

import pytest
from support.peer_files import document, turn
from weft_bench.report.results import fronts
from weft_bench.report.results.fronts import comparisons, groups, load_plots


def _plays(values: dict[str, list[float]], first: int = 300) -> list[dict[str, Any]]:
    return [
        turn(front, first + place, value)
        for front, found in values.items()
        for place, value in enumerate(found)
    ]


def test_best_peer_is_chosen_for_each_seed() -> None:
    plays = {"weft/resident": [8.0, 9.0], "a": [10.0, 30.0], "b": [40.0, 18.0]}
    (group,) = groups([document(*_plays(plays))])
    ratio = group.ratio("mean")
    assert ratio.middle == pytest.approx((0.8 * 0.5) ** 0.5)
    assert group.best("mean") == "a (1), b (1)"
    assert group.seeds == (300, 301)


def test_rows_of_weft_are_no_peers() -> None:
    plays = {"weft/resident": [8.0, 8.0], "weft/fcfs": [1.0, 1.0], "a": [10.0, 10.0]}
    (group,) = groups([document(*_plays(plays))])
    assert group.peers == ["a"]
    assert group.ratio("mean").middle == pytest.approx(0.8)


def test_our_row_has_the_last_order_of_the_file() -> None:
    plays = _plays({"weft/warm_plas": [8.0], "a": [10.0]})
    (group,) = groups([document(*plays, orders=["fcfs", "warm_plas"])])
    assert group.ours == "weft/warm_plas"


def test_files_with_the_same_settings_are_one_group_and_the_later_play_counts() -> None:
    old = document(*_plays({"weft/resident": [8.0, 8.0], "a": [10.0, 10.0]}), seeds=2)
    new = document(*_plays({"b": [9.0]}), *_plays({"weft/resident": [6.0]}), date="2026-02-01")
    (group,) = groups([new, old])
    assert group.peers == ["a", "b"]
    assert group.found.where(front="weft/resident").series("mean") == {300: 6.0, 301: 8.0}
    assert group.ratio("mean").middle == pytest.approx((6 / 9 * 8 / 10) ** 0.5)


def test_plays_with_targets_of_turns_are_compared_apart() -> None:
    plays = _plays({"weft/slack": [8.0, 8.0], "a": [10.0, 10.0]})
    for play in plays:
        share = 0.9 if play["front"] == "weft/slack" else 0.6
        play["slices"]["all"] |= {"turns": 4, "attained": share, "turn_mean": 1.0, "turn_p95": 2.0}
    plain = document(*plays)
    own = document(*plays, turn_target_scale=2.0) | {"title": "Turns"}
    assert [fronts.has_targets(one) for one in (plain, own)] == [False, True]
    attained, *others = fronts.of_turns("hexgen", own)
    assert (attained.source, attained.title, attained.seeds) == ("hexgen", "Turns", (300, 301))
    assert attained.score.ratio.middle == pytest.approx(1.5)
    assert [one.score.name for one in others] == ["w, mean of turns", "w, P95 of turns"]


def test_other_settings_and_loads_are_other_groups() -> None:
    plays = _plays({"weft/resident": [8.0, 8.0], "a": [10.0, 10.0]})
    loaded = [{**play, "load": load} for load in (1.2, 0.8) for play in plays]
    found = groups([document(*plays), document(*plays, slots=8), document(*loaded)])
    assert [(g.name, g.settings["slots"]) for g in found] == [
        ("w", 4), ("w", 8), ("w, load 0.8", 4), ("w, load 1.2", 4),
    ]  # fmt: skip
    (mean, p95, p99) = load_plots(found)
    ((name, lines),) = mean.panels
    assert name == "w, 2 x 4 slots, 3,000 blocks"
    assert [(line.label, line.x) for line in lines] == [
        ("weft/resident", [0.8, 1.2]), ("a", [0.8, 1.2]),
    ]  # fmt: skip
    assert (p95.y, p99.y) == ("P95 completion, s", "P99 completion, s")


def test_one_load_has_no_plot() -> None:
    plays = _plays({"weft/resident": [8.0], "a": [10.0]})
    assert load_plots(groups([document(*plays, load=0.8)])) == []


def test_failed_plays_and_files_without_peers_are_left_out() -> None:
    failed = [turn("a", 300, 1.0, errors=2), *_plays({"a": [10.0]}, first=301)]
    (group,) = groups([document(*_plays({"weft/resident": [8.0, 8.0]}), *failed)])
    assert group.ratio("mean").middle == pytest.approx(0.8)
    assert groups([document(*_plays({"weft/resident": [8.0]}))]) == []


def test_comparisons_have_goals_on_emulated_engines_only() -> None:
    plays = _plays({"weft/resident": [8.0, 8.1], "a": [10.0, 10.0]})
    real = {**document(*plays), "kind": "real"}
    found = list(comparisons(groups([document(*plays), real])))
    assert [(one.score.name, one.goal) for one in found] == [
        *(("w, " + label, fronts.GOALS[name]) for name, label in fronts.LABELS.items()),
        *(("w, " + label, None) for label in fronts.LABELS.values()),
    ]


def test_groups_that_would_look_alike_have_a_note() -> None:
    plays = _plays({"weft/resident": [8.0, 8.0], "a": [10.0, 10.0]})
    found = groups([document(*plays), document(*plays, chats=0.5)])
    assert [group.name for group in found] == ["w", "w, chats 0.5"]
