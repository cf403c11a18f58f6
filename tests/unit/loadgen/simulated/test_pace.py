"""An engine in real time: tokens arrive, reports are in real seconds, and aborted calls leave."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support.batches import work
from support.simulated import ticking
from support.waiting import until
from weft_bench.simulated.batcher import Batcher
from weft_bench.simulated.pace import Pace
from weft_engine.wire import CallReport

pytestmark = pytest.mark.anyio
# A step of one engine second takes 0.1 ms.
FAST = 10_000.0


class Kept:
    """A sink that records its tokens and report."""

    def __init__(self, on_tokens: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self.report: CallReport | None = None
        self._on_tokens = on_tokens

    def tokens(self, count: int) -> None:
        assert self.report is None
        self.count += count
        self._on_tokens()

    def ended(self, report: CallReport) -> None:
        assert self.report is None
        self.report = report


@pytest.fixture
def reports() -> list[CallReport]:
    return []


@pytest.fixture
async def pace(reports: list[CallReport]) -> Pace:
    return Pace(Batcher(ticking(slots=2), "plas", {}), FAST, reports.append)


async def test_tokens_come_before_the_end_and_times_are_real_seconds(pace, reports):
    sinks = [Kept() for _ in range(6)]
    for number, sink in enumerate(sinks):
        pace.add(work(f"c{number}", 20, 10), sink)
    await until(lambda: all(sink.report for sink in sinks), "all calls end")
    assert [sink.count for sink in sinks] == [10] * 6
    assert sorted(r.call for r in reports) == [f"c{number}" for number in range(6)]
    for report in reports:
        # Ten steps of a second, and as many again for a preempted call.
        assert 10 / FAST <= report.service_s <= 25 / FAST
    # Three pairs run in sequence.
    assert max(r.waiting_s for r in reports) >= 10 / FAST
    assert pace.engine.violations() == []


async def test_program_service_counts_in_engine_seconds(pace):
    first, much, none = Kept(), Kept(), Kept()
    # 5 ms of real time are 50 s of the engine's: a low queue.
    pace.add(work("much", 20, 10, service_s=0.005), much)
    pace.add(work("none", 20, 10), none)
    pace.add(work("first", 20, 10), first)
    await until(lambda: bool(much.report and none.report and first.report), "all end")
    assert much.report.queue_path[0] == 6
    assert none.report.queue_path[0] == 0
    assert much.report.waiting_s > none.report.waiting_s


async def test_call_aborted_during_a_step_receives_nothing_more_and_is_reported(pace, reports):
    name = ""
    gone, other = Kept(lambda: pace.abort(name)), Kept()
    name = pace.add(work("gone", 20, 500), gone)
    pace.add(work("other", 20, 20), other)
    await until(lambda: other.report is not None, "the other one ends")
    assert gone.count == 1
    assert gone.report is None
    (report,) = [r for r in reports if r.call == "gone"]
    assert 1 <= report.output_tokens < 500
    assert pace.engine.violations() == []
    assert pace.engine.state()["kv_usage"] == 0
    pace.abort(name)


async def test_two_calls_with_one_name_are_separate(pace, reports):
    one, other = Kept(), Kept()
    pace.add(work("same", 20, 3), one)
    pace.add(work("same", 20, 7), other)
    await until(lambda: bool(one.report and other.report), "both end")
    assert sorted(r.output_tokens for r in reports) == [3, 7]


async def test_between_steps_runs_at_once_if_idle_and_after_the_step_if_busy(pace):
    seen: list[bool] = []
    pace.between_steps(lambda: seen.append(pace.engine.busy))
    assert seen == [False]
    sink = Kept()
    pace.add(work("c", 20, 50), sink)
    await until(lambda: sink.count > 0, "it runs")
    pace.between_steps(lambda: seen.append(pace.engine.busy))
    await until(lambda: len(seen) == 2, "the step ends")
    assert seen == [False, False]
    await until(lambda: sink.report is not None, "it ends")


class Blocking(Kept):
    """Blocks the event loop at the first token, when the engine still has steps to run."""

    def tokens(self, count: int) -> None:
        if self.count == 0:
            time.sleep(0.25)
        super().tokens(count)


async def test_delayed_engine_does_not_catch_up(pace):
    sink = Blocking()
    pace.add(work("c", 20, 100), sink)
    await until(lambda: sink.report is not None, "it ends")
    assert pace.behind_s > 0.2
    assert sink.report.service_s < 0.2
