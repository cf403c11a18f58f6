"""Attainment of turns beside the best peer of each seed, by hand."""

from __future__ import annotations

from weft_bench.peers.outcome import of_turns, summarise
from weft_bench.peers.turns import UserTurn
from weft_bench.report.peers import Turn
from weft_bench.report.turn_targets import SLACK, findings, given, tables, title

_TURN = UserTurn(0, 0, 1.0, 2.0, "a")


def play(front: str, seed: int, *durations: float, errors: float = 0.0, load: float = 0.0) -> Turn:
    figures = summarise([], 1.0) | {"late": 0.0, "errors": errors}
    figures |= of_turns([(seconds, _TURN) for seconds in durations], 1.0)
    return Turn("w", front, seed, {"all": figures}, load)


PLAYS = [
    play(SLACK, 300, 1.0, 2.0, 1.5, 2.5),
    play("a", 300, 1.0, 3.0, 3.0, 3.0),
    play("b", 300, 1.0, 1.0, 9.0, 9.0),
    play(SLACK, 301, 1.0, 2.0, 1.5, 2.5),
    play("a", 301, 1.0, 1.0, 1.0, 3.0),
    play("b", 301, 1.0, 3.0, 3.0, 3.0),
]


def test_goal_and_losses_are_findings() -> None:
    one = [play for play in PLAYS if play.seed == 301]
    assert findings(one) == [
        "missed: w: attainment of turns is 1.00 of the best peer's, goal 1.3",
        "loss: w: mean of turns is 1.17 of the best peer's",
    ]
    (met,) = findings([play for play in PLAYS if play.seed == 300])
    assert met == "w: attainment of turns is 1.50 of the best peer's, goal 1.3"


def test_losses_to_other_orders_are_findings_without_peers() -> None:
    ours = [play(SLACK, 300, 1.0, 2.0, 3.0, 3.0), play("weft/urgency", 300, 1.0, 1.0, 2.0, 3.0)]
    assert findings(ours) == [
        "loss: w: attainment of turns is 0.667 of the best other order's",
        "loss: w: mean of turns is 1.29 of the best other order's",
        "loss: w: P95 of turns is 1.05 of the best other order's",
    ]
    assert findings(ours[:1]) == []


def test_plays_with_errors_are_not_compared() -> None:
    broken = [play(SLACK, 300, 1.0, errors=1.0), play("a", 300, 1.0)]
    assert findings(broken) == []


def test_title_names_the_workloads_and_plays_without_targets_are_recognised() -> None:
    assert title(PLAYS) == "Targets of turns: w"
    assert given(PLAYS)
    assert not given([Turn("w", "a", 0, {"all": summarise([], 1.0)})])


def test_tables_show_attainment_and_the_best_peer() -> None:
    turns, ratios = tables(PLAYS)
    assert turns["title"] == "w, 4 turns, seeds 300, 301"
    assert [row[0] for row in ratios["rows"]] == ["a", "b", "best peer of each seed"]
    assert [row[0] for row in turns["rows"]] == [SLACK, "a", "b"]
