"""Observers: overridden hooks run in order, and their failures do not fail a call."""

import pytest
from weft_gateway.calls.call import PREFILL, Call, Hooks, Tap
from weft_gateway.calls.observers import CallObserver, Observers, notify, taps
from weft_gateway.engine.endpoints import BY_PATH

pytestmark = pytest.mark.anyio

CHAT = BY_PATH["/v1/chat/completions"]
CALL = Call("call-1", CHAT, [], b"req", 0.0, Hooks())


class Named(CallObserver):
    """Records when its hooks run."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self._name = name
        self._turns = turns

    def closed(self, call: Call) -> None:
        self._turns.append(self._name)


class Waits(Named):
    """Awaits in its hook."""

    def closed(self, call: Call) -> object:  # type: ignore[override]
        return self._later()

    async def _later(self) -> None:
        self._turns.append(self._name)


class Fails(CallObserver):
    """Always raises."""

    def closed(self, call: Call) -> None:
        raise RuntimeError("closed")

    def streams(self, call: Call) -> Tap | None:
        raise RuntimeError("head")


async def test_hooks_run_in_order_and_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    observers, turns = Observers(), list[str]()
    for observer in (Named("a", turns), Fails(), Waits("b", turns), None, Named("c", turns)):
        observers.add(observer)
    pending = notify(observers.of(CHAT).closed, CALL)
    assert pending is not None
    await pending
    assert turns == ["a", "b", "c"]
    assert "an observer of call call-1 failed" in caplog.text


def test_inherited_hooks_are_not_called() -> None:
    observers = Observers()
    observers.add(Named("a", []))
    hooks = observers.of(CHAT)
    assert (len(hooks.closed), hooks.head, hooks.ended) == (1, [], [])


def test_gateway_calls_are_observed_only_on_request() -> None:
    observers = Observers()
    observers.add(Named("a", []))
    assert observers.of(PREFILL).closed == []


def test_observer_that_fails_at_the_head_adds_no_tap(caplog: pytest.LogCaptureFixture) -> None:
    observers = Observers()
    observers.add(Fails())
    assert taps(observers.of(CHAT).streams, CALL) == []
    assert "failed" in caplog.text
