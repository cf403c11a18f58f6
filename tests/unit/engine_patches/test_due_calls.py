"""Due calls over the default order, on a table of calls without an engine; tests/engine has one."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from weft_engine.call_state import CallState
from weft_engine.call_table import CallTable
from weft_engine.due_calls import DueCalls
from weft_engine.orders import build_order
from weft_engine.orders.slack import DueCall, on_time
from weft_engine.wire import CallContext

MARGIN = 4.0
PATIENCE = 30.0
SLOTS = 4
OPTIONS = {"due_margin_s": MARGIN, "default_budget_s": PATIENCE}


class Engine:
    """Queues of an engine with four slots. large: sequences that do not fit into its memory."""

    def __init__(self) -> None:
        self.calls = CallTable(build_order("slack", OPTIONS))
        self.now = 0.0
        self.running: list[str] = []
        self.waiting: list[str] = []
        self.large: set[str] = set()

    @property
    def layer(self) -> DueCalls:
        assert isinstance(self.calls.layer, DueCalls)
        return self.calls.layer

    def slots(self) -> int:
        return SLOTS

    def free_slots(self) -> int:
        return max(0, SLOTS - len(self.running))

    def may_fit(self, sequence: str) -> bool:
        return sequence not in self.large

    def first_not_due(self, tenant: str) -> str | None:
        ours = [s for s in self.queue() if self.of(s).context.tenant == tenant]
        return next((s for s in ours if not self.of(s).due), None)

    def queue(self) -> list[str]:
        """The waiting sequences in order."""
        return sorted(self.waiting, key=self.calls.rank)

    def of(self, sequence: str) -> CallState:
        call = self.calls.of(sequence)
        assert call is not None
        return call

    def come(
        self, name: str, budget: float | None = None, cost: float | None = None, **given
    ) -> None:
        call = given.pop("call", name)
        self.calls.arrive(
            name, CallContext(call, call, budget_s=budget, cost_s=cost, **given), self.now
        )
        self.waiting.append(name)

    def start(self, name: str) -> None:
        self.waiting.remove(name)
        self.running.append(name)
        self.calls.start(name, self.now)

    def preempt(self, name: str) -> None:
        self.running.remove(name)
        self.waiting.append(name)
        self.calls.preempt(name, self.now)

    def leave(self, name: str) -> None:
        (self.running if name in self.running else self.waiting).remove(name)
        self.calls.leave(name, self.now)

    def serve(self, seconds: float) -> None:
        self.now += seconds
        self.calls.serve(dict.fromkeys(self.running, 1), seconds, self.now)

    def refresh(self, after: float = 0.0) -> list[str]:
        """Wait and refresh. Returns the waiting sequences in order."""
        self.now += after
        self.layer.refresh(self.now, self)
        assert self.calls.violations([*self.running, *self.waiting]) == []
        return self.queue()


def test_calls_come_first_while_their_slack_is_within_the_margin():
    e = Engine()
    e.come("old", arrival_s=1.0)
    e.come("due", 12.0, 2.0, arrival_s=9.0)
    e.come("tighter", 9.0, 2.0, arrival_s=10.0)
    assert e.refresh() == ["old", "due", "tighter"]
    # The latest starts are at 10 and 7.
    assert e.refresh(3.0) == ["tighter", "old", "due"]
    assert e.refresh(3.0) == ["tighter", "due", "old"]
    assert e.refresh(1.0) == ["tighter", "due", "old"]
    assert e.refresh(0.1) == ["due", "old", "tighter"]
    assert e.refresh(3.0) == ["old", "due", "tighter"]


def test_a_late_call_loses_the_place_of_its_target():
    e = Engine()
    e.come("loose", 12.0, 2.0, arrival_s=1.0, deadline_s=25.0)
    e.come("tight", 3.0, 1.0, arrival_s=2.0, deadline_s=5.0)
    e.come("none", arrival_s=0.0)
    assert e.refresh() == ["tight", "loose", "none"]
    # The tight one is due until 2 s, and as if without a target then: until 32, not until 7.
    assert e.refresh(2.1) == ["loose", "none", "tight"]
    e.start("tight")
    e.preempt("tight")
    assert e.refresh() == ["loose", "none", "tight"]
    # Late with a target behind that of a program without one.
    e.come("late", 0.0, 1.0, arrival_s=0.0, deadline_s=90.0)
    assert e.refresh(0.1) == ["loose", "none", "tight", "late"]
    e.calls.switch(e.calls.order, e.now)
    assert not e.of("tight").late


def test_the_next_refresh_is_known():
    e = Engine()
    e.come("old")
    assert e.layer.next_at == math.inf
    e.come("due", 12.0, 2.0)
    assert e.layer.next_at == 6.0
    e.refresh(6.0)
    assert e.layer.next_at == math.nextafter(10.0, math.inf)
    e.start("due")
    e.refresh()
    e.leave("due")
    e.refresh(0.1)
    assert e.layer.next_at == math.inf


def test_a_preempted_call_has_the_slack_that_its_service_leaves():
    e = Engine()
    e.come("call", 20.0, 10.0)
    e.start("call")
    e.serve(4.0)
    e.preempt("call")
    # 16 s are left, of which it needs 6.
    e.refresh(5.9)
    assert not e.of("call").due
    e.refresh(0.2)
    assert e.of("call").due


def test_due_calls_get_a_share_of_the_slots_together_with_those_that_run():
    e = Engine()
    for number in range(5):
        e.come(f"due{number}", 4.0, 1.0, arrival_s=9.0)
    e.come("old", arrival_s=1.0)
    assert e.refresh()[:4] == ["due0", "due1", "due2", "old"]
    e.start("due0")
    e.start("old")
    assert not e.of("due3").due
    e.refresh()
    assert not e.of("due3").due
    e.leave("due0")
    assert e.refresh()[:3] == ["due1", "due2", "due3"]


def test_a_call_with_more_sequences_than_the_share_holds_keeps_its_place():
    e = Engine()
    for number in range(4):
        e.come(f"wide{number}", 4.0, 1.0, call="wide", arrival_s=9.0)
    e.come("due", 4.5, 1.0, arrival_s=10.0)
    assert e.refresh()[0] == "due"


def test_of_calls_that_cannot_all_be_on_time_the_costly_one_gives_up():
    e = Engine()
    e.come("long", 20.0, 20.0)
    for number in range(9):
        e.come(f"short{number}", 4.0, 2.0, arrival_s=9.0)
    e.refresh()
    # Three slots for due calls: the long call would take one of them for 20 s.
    assert not e.of("long").due
    assert [e.of(f"short{number}").due for number in range(4)] == [True, True, True, False]
    assert on_time([DueCall(0.0, 20.0, 1.0)], 3, []) == ([True], 0.0)


def test_due_calls_get_a_share_of_the_slots_of_their_tenant():
    e = Engine()
    for number in range(6):
        e.come(f"liar{number}", 1.0, 1.0, tenant="l", arrival_s=9.0)
    e.come("honest", 3.0, 1.0, tenant="h", arrival_s=9.0)
    e.refresh()
    assert [e.of(f"liar{number}").due for number in range(2)] == [True, False]
    assert e.of("honest").due


@pytest.mark.parametrize("slots", [1, 4])
def test_no_call_is_due_while_another_has_waited_too_long_for_memory(slots, monkeypatch):
    """And to one that has waited too long for the only slot."""
    e = Engine()
    monkeypatch.setattr(e, "slots", lambda: slots)
    e.come("large", arrival_s=1.0)
    if slots > 1:
        e.large.add("large")
    for second in range(int(PATIENCE) + 2):
        name = f"due{second}"
        e.come(name, 4.0, 1.0, arrival_s=9.0)
        first = e.refresh()[0]
        assert first == ("large" if second >= PATIENCE else name)
        e.leave(name)
        e.serve(1.0)
    # It starts, so due calls come first again.
    e.start("large")
    e.come("other", arrival_s=2.0)
    e.come("due", 4.0, 1.0, arrival_s=9.0)
    assert e.refresh() == ["due", "other"]


def test_many_late_calls_do_not_hide_a_due_one():
    e = Engine()
    for number in range(300):
        e.come(f"late{number}", 1.0, 0.5)
    e.refresh(0.2)
    e.come("due", 5.0, 0.5, arrival_s=9.0)
    assert e.refresh(2.0)[0] == "due"


def test_a_running_call_is_spared_if_it_would_miss_its_target():
    e = Engine()
    for name, seconds in (("tight", 15.0), ("ample", 40.0), ("late", 5.0), ("none", None)):
        e.come(name, seconds, 10.0)
        e.start(name)
    e.come("due", 8.0, 6.0)
    e.come("unknown", 3.0, None)
    e.refresh()
    (claims,) = e.layer.claims()
    known = [call for call in claims if call.context.cost_s is not None]
    assert [e.layer.spares(e.of(name), known, e.now) for name in e.running] == [
        True, False, False, False,
    ]  # fmt: skip
    # A call of unknown cost may take long.
    assert [e.layer.spares(e.of(name), claims, e.now) for name in e.running] == [
        True, True, False, False,
    ]  # fmt: skip
    e.leave("ample")
    e.start("due")
    assert e.layer.spares(e.of("due"), known, e.now)


def expected(e: Engine, tenant: str) -> set[str]:
    """The waiting calls that come first, by a look at all calls."""
    calls = {e.of(s).context.call: e.of(s) for s in [*e.running, *e.waiting]}
    mine = [call for call in calls.values() if call.context.tenant == tenant]

    def cost(call: CallState) -> float:
        return max(0.0, (call.context.cost_s or 0.0) - call.service_s)

    waiting = []
    for call in mine:
        latest = call.view(e.now).latest_start_s
        waits = call.waiting_since is not None and latest is not None
        if waits and latest - MARGIN <= e.now <= latest:
            waiting.append((latest, call.context.call, call))
    waiting.sort()
    running = [call for call in mine if call.due and call.waiting_since is None]
    limit = max(1, int(SLOTS * e.calls.shares.portion(tenant) * 0.75))
    used = sum(len(call.running) + len(call.waiting) for call in running)
    due = [DueCall(latest - e.now, cost(call), 1.0) for latest, _, call in waiting]
    chosen, _ = on_time(due, max(0, limit - used), [cost(call) for call in running])
    found = set()
    for (_, name, call), fits in zip(waiting, chosen, strict=True):
        if fits and used + len(call.waiting) <= limit:
            used += len(call.waiting)
            found.add(name)
    return found


def assert_no_late_call_gains(e: Engine, order: list[str], looks: bool) -> None:
    """If a late call precedes one that can be on time, it would do so without its target, too."""
    others = [s for s in order if not e.of(s).due and e.of(s).waiting_since is not None]
    for at, late in enumerate(others):
        view = e.of(late).view(e.now)
        if view.latest_start_s is None or view.latest_start_s >= e.now:
            continue
        if looks:
            assert e.of(late).late
        if e.of(late).late:
            untargeted = e.of(late).context.arrival_s + PATIENCE
            assert all(untargeted <= e.calls.rank(behind)[1] for behind in others[at + 1 :])


BUDGETS = [None, 0.0, 1.0, 3.0, 6.0, 9.0, 20.0, 1e12]
COSTS = [None, 0.0, 0.5, 2.0, 8.0, 1e12]


@settings(max_examples=150, deadline=None)
@example(0)
@given(st.integers(0, 2**32))
def test_any_course_of_events_leads_the_calls_that_a_look_at_all_calls_would(seed):
    """Siblings, preempted calls, aborts, two tenants, and any budgets and costs. A late call never
    precedes a due one that comes first, and due calls stay within their share."""
    e, numbers = Engine(), random.Random(seed)
    leads = 0
    for number in range(80):
        event = numbers.choice("aaaasssplv")
        name = f"s{number}"
        if event == "a":
            call = f"c{number // 2 if number % 7 == 0 else number}"
            tenant = "ab"[number % 3 == 0 and number > 40]
            budget, cost = numbers.choice(BUDGETS), numbers.choice(COSTS)
            deadline = None if budget is None else numbers.choice([budget, 10.0, 90.0])
            e.come(
                name, budget, cost, call=call, tenant=tenant, arrival_s=float(number),
                deadline_s=deadline,
            )  # fmt: skip
        elif event == "s" and e.waiting and e.free_slots():
            e.start(e.queue()[0])
        elif event == "p" and e.running:
            e.preempt(numbers.choice(e.running))
        elif event == "l" and (all_ := [*e.running, *e.waiting]):
            e.leave(numbers.choice(all_))
        elif event == "v":
            e.serve(numbers.choice([0.1, 1.0, 2.5]))
        looks = e.now >= e.layer.next_at
        order = e.refresh()
        tenants = {e.of(s).context.tenant for s in order}
        leading = {e.of(s).context.call for s in order if e.of(s).due and not e.of(s).running}
        leads += len(leading)
        if looks:
            assert leading == set().union(*(expected(e, tenant) for tenant in sorted(tenants)))
        ranks = [e.calls.rank(s) for s in order if e.of(s).due]
        for sequence in order:
            latest = e.of(sequence).view(e.now).latest_start_s
            if e.of(sequence).waiting_since is not None and (latest is None or latest < e.now):
                assert not e.of(sequence).due
                assert all(rank < e.calls.rank(sequence) for rank in ranks)
        assert_no_late_call_gains(e, order, looks)
    if seed == 0:
        assert leads > 5
    for sequence in [*e.running, *e.waiting]:
        e.leave(sequence)
    e.refresh(1e13)
    assert e.layer.next_at == math.inf


def test_other_options_apply_to_calls_that_wait_already() -> None:
    e = Engine()
    for number in range(SLOTS):
        e.come(f"runs {number}")
        e.start(f"runs {number}")
    e.come("plain")
    e.come("soon", budget=10.0, cost=1.0)
    e.layer.refresh(e.now, e)
    assert e.queue() == ["plain", "soon"]
    e.calls.change_layer(build_order("slack", OPTIONS | {"due_margin_s": 20.0}), e.now)
    e.layer.refresh(e.now, e)
    assert e.queue() == ["soon", "plain"]
    e.calls.change_layer(build_order("slack", OPTIONS | {"due_margin_s": 1.0}), e.now)
    e.layer.refresh(e.now, e)
    assert e.queue() == ["plain", "soon"]
    assert e.calls.layer.violations() == []
