"""The parts of tuning that the settings select."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from weft_gateway.config import load
from weft_gateway.model import ProgramKey
from weft_gateway.policies.costs import Costs
from weft_gateway.programs.tuning import TuningStore
from weft_gateway.telemetry.tuning_metrics import TuningMetrics
from weft_gateway.tuning.process import replay
from weft_gateway.tuning.replay.trace import Values
from weft_gateway.tuning.setup import TuningParts, build_tuning
from weft_gateway.tuning.shapes import opaque


def parts(**settings: Any) -> tuple[TuningParts, CollectorRegistry]:
    registry, nothing = CollectorRegistry(), Any
    made: Any = nothing
    found = build_tuning(
        load(**settings), TuningStore(), Costs(), made, made, TuningMetrics(registry), [].append
    )
    return found, registry


def test_without_tuning_values_are_still_shared() -> None:
    """Values that a person sets with one gateway reach all others."""
    off, _ = parts()
    assert (off.tuner, off.observer, set(off.tasks)) == (None, None, {"tuned_values"})
    assert not off.values.tunes
    off.program_ended(ProgramKey("t", "p"))


@pytest.mark.parametrize(("rule", "least"), [("paper", 5), ("slowdown", 30)])
def test_the_tuner_has_the_rule_and_the_balancer_of_the_settings(rule: str, least: int) -> None:
    on, _ = parts(tuning=rule, balancer="work", balancer_alpha=0.7, locality_threshold_tokens=77)
    tuner = on.tuner
    assert tuner is not None
    assert (tuner.rule.name, tuner.rule.least) == (rule, least)
    balancing = tuner.balancing
    assert (balancing.balancer, balancing.threshold_tokens, balancing.alpha) == ("work", 77, 0.7)
    assert tuner.replay is replay
    assert on.observer is tuner.journal
    assert (set(on.tasks), on.values.tunes) == ({"tuned_values", "tuner"}, True)


def test_the_end_of_a_program_reaches_the_journal() -> None:
    on, _ = parts(tuning="paper")
    assert on.tuner is not None
    key = ProgramKey("t", "p")
    on.tuner.journal._program(opaque(*key))
    assert on.tuner.journal.counts()["running"] == 1
    on.program_ended(key)
    assert on.tuner.journal.counts()["running"] == 0


def test_gauges_show_the_values_the_leader_and_a_failure() -> None:
    on, registry = parts(tuning="paper")
    assert on.tuner is not None
    on.show()
    text = generate_latest(registry).decode()
    assert "weft_tuning_leader 0.0" in text
    assert "weft_tuning_failing 0.0" in text
    assert "weft_tuning_value{" not in text
    on.values.values, on.values.leads, on.tuner.failing = Values(alpha=0.3), True, "it failed"
    on.show()
    text = generate_latest(registry).decode()
    assert 'weft_tuning_value{name="alpha"} 0.3' in text
    assert "weft_tuning_leader 1.0" in text
    assert "weft_tuning_failing 1.0" in text
