"""What the table of attacks says."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.attack.attacks import ATTACKS
from weft_bench.attack.command import Noticed, figures, show

ALONE = Noticed.of([1.0, 2.0, 3.0], 0)


def test_the_worst_call_and_the_tail_are_of_all_calls():
    noticed = Noticed.of([float(number) for number in range(1, 102)], 3)
    assert (noticed.calls, noticed.errors, noticed.worst_ms) == (101, 3, 101.0)
    assert noticed.p99_ms == pytest.approx(100.0)
    assert Noticed.of([], 0).worst_ms == 0.0


def test_attacks_above_the_goal_are_named(capsys):
    seen = {"mild": (ALONE, Noticed.of([102.9], 0)), "hard": (ALONE, Noticed.of([103.1], 0))}
    show(seen)
    assert "above its baseline: hard\n" in capsys.readouterr().out


def test_every_number_is_a_figure():
    found = {f.name: f.value for f in figures({"hard": (ALONE, Noticed.of([5.0], 1))})}
    assert len(found) == 8
    assert found["hard/alone/worst"] == 3.0
    assert (found["hard/attacked/worst"], found["hard/attacked/errors"]) == (5.0, 1)


def test_an_unknown_attack_is_refused_before_anything_starts(capsys):
    done = CliRunner().invoke(cli.bench, ["attack", "--attacks", "many headers,sorcery"])
    assert done.exit_code == 2
    assert "sorcery" in done.output + capsys.readouterr().err


def test_every_attack_says_what_it_does():
    assert all(attack.__doc__ for attack in ATTACKS.values())
