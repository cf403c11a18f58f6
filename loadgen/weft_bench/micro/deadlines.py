"""`weft bench deadlines`: the processor time that deadlines add to a call in the gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from time import perf_counter, thread_time
from typing import Final

import httpx
from weft_engine.wire import CallReport
from weft_gateway.calls.budgets import Budgets
from weft_gateway.calls.call import Call, Caller
from weft_gateway.calls.engines import Engines
from weft_gateway.calls.features.costs import CostObserver
from weft_gateway.calls.features.slo import SloObserver
from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.calls.observers import Observers
from weft_gateway.calls.outlook import Outlook
from weft_gateway.calls.placement import Placement, PromptCounter
from weft_gateway.calls.turns import Turns
from weft_gateway.config import load
from weft_gateway.engine.advice import KvAdvisor
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.pool import Timeouts
from weft_gateway.engine.registry import Registry
from weft_gateway.engine.tokens import TokenCounter
from weft_gateway.model import Outcome, ProgramKey
from weft_gateway.model.slo import Granted, SloClass, Slos
from weft_gateway.policies.costs import EngineCosts, StepCosts
from weft_gateway.policies.route.registry import build
from weft_gateway.programs.identity import MAIN_THREAD, Identity
from weft_gateway.programs.memory import MemoryTable, at_once
from weft_gateway.stores import make_tenants
from weft_gateway.telemetry.metrics import Metrics
from weft_gateway.telemetry.slo_tally import SloTally
from weft_gateway.telemetry.tasks import Spawner

from weft_bench.cli.parts import DeadlinesOptions
from weft_bench.report.figures import finish
from weft_bench.report.rows import Column, figures, show
from weft_bench.stats import percentile

_CHAT: Final = BY_PATH["/v1/chat/completions"]
_MODEL: Final = "m"
_CALLER: Final = Caller("tenant", "")
# Programs between two readings of the clock, and the calls of each.
_PROGRAMS: Final = 20
_CALLS: Final = 5
_BASE: Final = "without these parts"
_NONE: Final = Slos()
_CLASS: Final = Slos(
    {"report": SloClass("report", deadline_s=90.0)}, {}, Granted("report", frozenset())
)


@dataclass(frozen=True, slots=True)
class _Variant:
    """Parts of a gateway. observes: it has the observers of deadlines."""

    balancer: str = "locality"
    slos: Slos = _NONE
    observes: bool = True


_VARIANTS: Final[Mapping[str, _Variant]] = {
    _BASE: _Variant(observes=False),
    "no deadlines": _Variant(),
    "deadlines": _Variant(slos=_CLASS),
    "deadlines, soonest": _Variant("soonest", _CLASS),
}
_COLUMNS: Final = (
    Column("p50", "s", "a call, us", ".1f", 1e6),
    Column("p90", "s", "p90, us", ".1f", 1e6),
    Column("more", "s", "more, us", ".1f", 1e6),
)


def run(options: DeadlinesOptions) -> int:
    """Measure and report. Returns the exit status."""
    rows = {(name,): row for name, row in measure(options.replicas, options.rounds).items()}
    title = f"processor time of a call from its arrival to its close, {options.replicas} replicas"
    show(title, ("gateway",), rows, _COLUMNS)
    finish("deadlines", options.json_file, asdict(options), figures(rows, _COLUMNS))
    return 0


def measure(replicas: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the figures of each variant, by the names of _COLUMNS.

    p50, p90: of rounds, each the mean of 100 calls in seconds. more: the median of the differences
    to the first variant. The variants take turns, so that other work on the machine meets all.
    """
    gateways = {name: _Gateway(one, replicas) for name, one in _VARIANTS.items()}
    found: dict[str, list[float]] = {name: [] for name in gateways}
    for gateway in gateways.values():
        # Forecasts are known and caches are full.
        for _ in range(3):
            gateway.round()
    for _ in range(rounds):
        for name, gateway in gateways.items():
            found[name].append(gateway.round())
    base = found[_BASE]
    return {
        name: {
            "p50": percentile(times, 0.5),
            "p90": percentile(times, 0.9),
            "more": percentile([a - b for a, b in zip(times, base, strict=True)], 0.5),
        }
        for name, times in found.items()
    }


class _Gateway:
    """The path of a call through a gateway's own parts, without HTTP and engines."""

    def __init__(self, variant: _Variant, replicas: int) -> None:
        slos = variant.slos
        urls = {f"r{number}": f"http://127.0.0.1:{number + 1}" for number in range(replicas)}
        registry, self._table = Registry(urls, Timeouts(1.0, 1.0, 1.0)), MemoryTable()
        router = build(variant.balancer, 0)
        counter = PromptCounter(TokenCounter(), router)
        budgets, client = Budgets(), EngineClient(httpx.AsyncClient(), "")
        for number, replica in enumerate(registry):
            replica.circuit = replace(replica.circuit, healthy=True)
            costs = StepCosts(0.001, 0.02, 3e-4, 1e-4, 1e-8, 16)
            if variant.slos.classes:
                budgets.costs.set_engine(f"r{number}", EngineCosts(costs, 200_000))
        predicts = bool(slos.classes)
        outlook = Outlook(budgets, self._table, variant.balancer == "soonest") if predicts else None
        self._placement = Placement(router, registry, self._table, counter, 1, outlook)
        tenants, metrics = make_tenants(load(), _NONE), Metrics()
        self._engines = Engines(
            registry, client, counter, tenants, Turns(), budgets, tag_prompts=False
        )
        self._lifecycle = Lifecycle(
            self._table,
            registry.prefixes,
            KvAdvisor(registry, client),
            self._engines.ask_report,
            Spawner("bench", metrics.task_failures),
            lambda code: None,
        )
        self._slo: SloObserver | None = None
        observers = Observers()
        if variant.observes:
            observers.add(CostObserver(budgets, self._table, predicts))
            tally = SloTally(slos, metrics, tenants.weight)
            self._slo = SloObserver(slos, self._table, budgets, tally)
            observers.add(self._slo)
        self._hooks = observers.of(_CHAT)
        self._number = 0

    def round(self) -> float:
        """Play programs, one call after another. Returns the mean seconds of a call, with its part
        of the program's end.
        """
        programs = list(self._programs())
        begun_s = thread_time()
        for program in programs:
            for call in program:
                at_once(self._serve(call))
            ended = at_once(self._table.end(program[-1].key, perf_counter()))
            if self._slo is not None:
                self._slo.program_ended(ended)
        return (thread_time() - begun_s) / (_PROGRAMS * _CALLS)

    def _programs(self) -> Iterator[list[Call]]:
        for _ in range(_PROGRAMS):
            self._number += 1
            yield [self._call(position) for position in range(_CALLS)]

    def _call(self, position: int) -> Call:
        program = f"p{self._number}"
        call = Call(f"{program}/{position}", _CHAT, [], b"", perf_counter(), self._hooks)
        call.identity = Identity(
            ProgramKey(_CALLER.tenant, program), MAIN_THREAD, "", "session", False
        )
        call.caller, call.model = _CALLER, _MODEL
        system = {"role": "system", "content": f"Stage {position} of the workflow."}
        user = {"role": "user", "content": "word " * 100}
        call.body, call.raw = {"messages": [system, user], "max_tokens": 200}, b" " * 700
        call.size = len(call.raw)
        return call

    async def _serve(self, call: Call) -> None:
        """Do what `CallPath.serve` does beside HTTP."""
        for hook in call.hooks.arrived:
            hook(call)
        opened = await self._lifecycle.open(call, self._placement.place(call))
        async with opened:
            for hook in call.hooks.opened:
                hook(call)
            call.context = self._engines.scheduling_context(call, weft=True)
            call.status, call.outcome = 200, Outcome.OK
            call.report = CallReport(call.id, 0.8, 0.1, 0, 180, 90, 40)
