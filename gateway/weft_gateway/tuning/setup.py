"""Builds the tuner that the settings select."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft_gateway.calls.observers import CallObserver
from weft_gateway.config import Settings
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry
from weft_gateway.model import ProgramKey
from weft_gateway.model.options import Tuning
from weft_gateway.policies.costs import Costs
from weft_gateway.programs.tuning import TuningStore
from weft_gateway.telemetry.tasks import Work
from weft_gateway.telemetry.tuning_metrics import TuningMetrics
from weft_gateway.tuning.engines import Engines
from weft_gateway.tuning.journal import Journal
from weft_gateway.tuning.process import replay
from weft_gateway.tuning.triggers import RULES
from weft_gateway.tuning.tuner import Balancing, Tuner
from weft_gateway.tuning.values import SharedValues
from weft_gateway.tuning.watch import CountedEvents


@dataclass(slots=True)
class TuningParts:
    """The parts of tuning in one gateway. tuner: None if it is off."""

    values: SharedValues
    tuner: Tuner | None
    metrics: TuningMetrics

    @property
    def observer(self) -> CallObserver | None:
        """The journal."""
        return None if self.tuner is None else self.tuner.journal

    @property
    def tasks(self) -> dict[str, Work]:
        """The background tasks by name."""
        found: dict[str, Work] = {"tuned_values": self.values.run}
        return found if self.tuner is None else {**found, "tuner": self.tuner.run}

    def program_ended(self, key: ProgramKey) -> None:
        """A program has ended."""
        if self.tuner is not None:
            self.tuner.journal.program_ended(key)

    def show(self) -> None:
        """Set the gauges."""
        tuner = self.tuner
        failing = tuner is not None and bool(tuner.failing)
        self.metrics.show(self.values.values.known(), leads=self.values.leads, failing=failing)


def build_tuning(
    settings: Settings,
    store: TuningStore,
    costs: Costs,
    registry: Registry,
    client: EngineClient,
    metrics: TuningMetrics,
    apply: Callable[[float], None],
) -> TuningParts:
    """Return the parts that the settings select. apply: uses another alpha."""
    tunes = settings.tuning is not Tuning.OFF
    values = SharedValues(store, apply, tunes)
    if not tunes:
        return TuningParts(values, None, metrics)
    rule = RULES[settings.tuning]
    balancing = Balancing(
        settings.balancer, settings.locality_threshold_tokens, settings.balancer_alpha
    )
    journal = Journal(costs, rule.window_s)
    engines = Engines(registry, client)
    events = CountedEvents(metrics)
    tuner = Tuner(rule, journal, values, engines, balancing, replay, events)
    return TuningParts(values, tuner, metrics)
