"""Decisions of the tuner at the ends of windows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.tuning import FAST, SLOW, shape
from weft_gateway.model.options import Tuning
from weft_gateway.programs.tuning import TuningStore
from weft_gateway.tuning.engines import EngineSet
from weft_gateway.tuning.process import Failure, ReplayError
from weft_gateway.tuning.replay.trace import Found, Values
from weft_gateway.tuning.shapes import unit_of
from weft_gateway.tuning.triggers import RULES
from weft_gateway.tuning.tuner import Action, Balancing, Tuner
from weft_gateway.tuning.values import SharedValues


class Journal:
    def __init__(self) -> None:
        self.units: list[Any] = []

    def sweep(self) -> None:
        pass

    def since(self, begin_s: float) -> list[Any]:
        return self.units

    def running(self) -> list[Any]:
        return []


class Engines:
    async def read(self) -> EngineSet:
        return EngineSet((FAST, SLOW), "urgency", {})


class Scene:
    """A tuner whose replay has a given result. slowdown: of the next window."""

    def __init__(self, rule: Tuning = Tuning.SLOWDOWN) -> None:
        self.now, self.applied, self.result = 0.0, [], Found(Values(alpha=0.5), 1.0, 2.0, [])
        self.error: ReplayError | None = None
        self.replays = 0
        self.values = SharedValues(TuningStore(), self.applied.append, True)
        self.values.leads = True
        self.journal: Any = Journal()
        engines: Any = Engines()
        balancing = Balancing("work", 2048, 0.2)
        self.tuner = Tuner(
            RULES[rule], self.journal, self.values, engines, balancing, self.replay,
            clock=lambda: self.now,
        )  # fmt: skip

    async def replay(self, trace: Any, limits: Any) -> Found:
        self.replays += 1
        trace.check()
        if self.error is not None:
            raise self.error
        return self.result

    def window(self, slowdown: float, count: int = 40) -> Action | None:
        """Play a window. Returns what was decided."""
        self.tuner.decision = None
        self.now += 1
        asyncio.run(self.tuner.tick())
        self.journal.units = [
            unit_of([shape(number, end=slowdown * (1 + number % 3 / 100))])
            for number in range(1, count + 1)
        ]
        self.now += 101
        asyncio.run(self.tuner.tick())
        return None if self.tuner.decision is None else self.tuner.decision.action


def test_a_regression_is_tuned_and_kept() -> None:
    scene = Scene(Tuning.PAPER)
    assert scene.window(1.0) is Action.NONE
    assert scene.window(1.0) is Action.NONE
    assert scene.replays == 0
    assert scene.window(2.0) is Action.SWITCHED
    assert scene.applied == [0.5]
    assert scene.window(1.5) is Action.KEPT
    assert scene.values.values == Values(alpha=0.5)


def test_a_change_that_made_it_worse_is_rolled_back() -> None:
    scene = Scene()
    assert scene.window(1.0) is Action.SWITCHED
    assert scene.window(1.5) is Action.ROLLED_BACK
    assert scene.applied == [0.5, 0.2]


def test_a_small_improvement_is_not_taken() -> None:
    scene = Scene()
    scene.result = Found(Values(alpha=0.5), 1.0, 1.04, [])
    assert scene.window(1.0) is Action.NONE
    assert scene.applied == []


@pytest.mark.parametrize("failure", list(Failure))
def test_a_failed_replay_keeps_the_values_and_is_repeated(failure: Failure) -> None:
    scene = Scene()
    scene.error = ReplayError(failure, "it failed")
    assert scene.window(1.0) is Action.FAILED
    assert (scene.tuner.failing, scene.applied) == ("it failed", [])
    scene.error = None
    assert scene.window(1.0) is Action.SWITCHED
    assert scene.tuner.failing == ""


def test_a_window_is_extended_until_enough_programs_have_ended() -> None:
    scene = Scene()
    assert scene.window(1.0, count=29) is None
    assert scene.window(1.0, count=30) is Action.SWITCHED


def test_only_the_leader_decides() -> None:
    scene = Scene()
    scene.values.leads = False
    assert scene.window(1.0) is None
    assert scene.replays == 0
