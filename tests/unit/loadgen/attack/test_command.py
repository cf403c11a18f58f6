"""The table of attacks and the missed goals."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.attack.attacks import ATTACKS, Activity, Target, frame
from weft_bench.attack.command import Seen, Windows, missed, table
from weft_bench.cli.parts import AttackOptions

DID = Activity(3, 3, 2_500_000, 4, 5, 6)


def seen(
    alone: list[list[float]], attacked: list[list[float]], did: Activity = DID, errors: int = 0
) -> Seen:
    return Seen(Windows(alone), Windows(attacked, errors), did)


def test_baseline_is_the_median_round_and_p99_covers_all_calls() -> None:
    one = seen([[1.0, 2.0], [90.0], [3.0]], [[1.0], [float(number) for number in range(101)]])
    assert one.alone.worst_ms == [2.0, 90.0, 3.0]
    assert one.more_ms == 97.0
    assert one.attacked.p99_ms == pytest.approx(99.0, abs=0.1)


def test_one_round_above_the_goal_misses_it() -> None:
    found = {
        "many keys": seen([[3.0]] * 3, [[102.9]] * 3),
        "slow heads": seen([[3.0]] * 3, [[4.0], [103.1], [4.0]]),
    }
    assert [one.partition(":")[0] for one in missed(found, 100.0)] == ["slow heads"]


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_without_effect_misses_the_goal(name: str) -> None:
    assert missed({name: seen([[1.0]], [[1.0]])}, 100.0) == []
    (one,) = missed({name: seen([[1.0]], [[1.0]], Activity(open=8))}, 100.0)
    assert "had no effect" in one


def test_failed_calls_of_the_honest_client_miss_the_goal() -> None:
    (one,) = missed({"many keys": seen([[1.0]], [[1.0]], errors=2)}, 100.0)
    assert "0 alone, 2 during" in one


def test_table_shows_the_attackers_activity() -> None:
    found = table({"many keys": seen([[1.0]], [[5.0]], errors=1)}, AttackOptions(rounds=1))
    (row,) = found["rows"]
    assert len(row) == len(found["columns"])
    named = dict(zip(found["columns"], row, strict=True))
    assert (named["calls (failed)"], named["more"]) == ("1 (1)", "4")
    assert [named[what] for what in ("MB sent", "served", "refused", "closed")] == [
        "2.5", "4", "5", "6",
    ]  # fmt: skip


def test_an_unknown_attack_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = CliRunner().invoke(cli.bench, ["attack", "--attacks", "many headers,sorcery"])
    assert done.exit_code == 2
    assert "sorcery" in done.output + capsys.readouterr().err


def test_frames_and_heads_are_well_formed() -> None:
    assert frame(0x81, b"hi") == b"\x81\x82\0\0\0\0hi"
    assert frame(0x00, b"a" * 300)[:8] == b"\x00\xfe\x01\x2c\0\0\0\0"
    assert Target("h", 1, "m").head(length=2).endswith(b"Content-Length: 2\r\n\r\n")
