"""The simulation: arrivals, steps of replicas and answers, in the order of virtual time.

What happens at one instant happens in this order: steps end, calls come, steps begin. A call that
follows an answer without a gap is so in the very next step.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from engine_patches.wire import CallReport
from loadgen.fit import ReadyProgram
from loadgen.schema import Part
from loadgen.sim.content import Seen, parts_of
from loadgen.sim.costs import on_tick
from loadgen.sim.engine import EngineSettings
from loadgen.sim.front import LOCALITY_THRESHOLD_TOKENS, Front, tags_of
from loadgen.sim.prefix_tree import PrefixTree
from loadgen.sim.presets import EngineShape
from loadgen.sim.prompts import place
from loadgen.sim.records import CallRecord, Simulation, program_record
from loadgen.sim.replica import Replica
from loadgen.streams import stream

_ENDS: Final = 0
_COMES: Final = 1
_BEGINS: Final = 2
# The balancer of `loadgen.sim.prefix_tree`, which production does not have.
PREFIX_TREE: Final = "prefix_tree"
# The order that must be told what is still to come.
_TOLD: Final = "srpt"


@dataclass(frozen=True, slots=True)
class Setup:
    """What is simulated. shapes: one for each replica. balancer: a router's name, or `PREFIX_TREE`.
    seed: of ties in the router.
    bytes_per_token: what the lengths of programs of messages were estimated with."""

    shapes: Sequence[EngineShape]
    engine: EngineSettings = field(default_factory=EngineSettings)
    balancer: str = "locality"
    threshold_tokens: int = LOCALITY_THRESHOLD_TOKENS
    seed: int = 0
    bytes_per_token: float = 4.0


@dataclass(slots=True)
class _Program:
    ready: ReadyProgram
    arrival_s: float
    parts: list[tuple[Part, ...]]
    costs: list[float]
    needs: list[set[int]]
    followers: list[list[int]]
    due: list[float]
    records: list[CallRecord] = field(default_factory=list)
    unanswered: int = 0


def simulate(
    programs: Sequence[ReadyProgram], arrivals: Sequence[float], setup: Setup
) -> Simulation:
    """Play all programs to their ends. arrivals: seconds, one a program.

    ValueError for settings or names that are unknown or arrivals that do not match;
    SimulationError for a call that no replica can hold.
    """
    with _without_collections():
        return _World(programs, arrivals, setup).run()


class _World:
    def __init__(
        self, programs: Sequence[ReadyProgram], arrivals: Sequence[float], setup: Setup
    ) -> None:
        self._setup = setup
        self._replicas = {
            f"replica-{i}": Replica(f"replica-{i}", shape, setup.engine)
            for i, shape in enumerate(setup.shapes)
        }
        self._front = _front(self._replicas, setup)
        self._tells = setup.engine.policy == _TOLD
        cost = setup.shapes[0].cost
        self._programs = {
            ready.id: _program(ready, on_tick(arrival), cost.alone, setup.bytes_per_token)
            for ready, arrival in zip(programs, arrivals, strict=True)
        }
        if len(self._programs) != len(programs):
            raise ValueError("programs must have names of their own")
        # (instant, what, a number that settles ties, replica or program, call or version).
        self._events: list[tuple[float, int, int, str, int]] = []
        self._number = 0
        self._versions = dict.fromkeys(self._replicas, 0)
        self._calls: dict[str, tuple[_Program, int, CallRecord]] = {}
        self._records: list[CallRecord] = []
        self._now = 0.0

    def run(self) -> Simulation:
        for program in self._programs.values():
            for number, needed in enumerate(program.needs):
                if not needed:
                    self._push(program.arrival_s, _COMES, program.ready.id, number)
        events = self._events
        while events:
            self._now, what, _, name, number = heapq.heappop(events)
            if what == _COMES:
                self._come(self._programs[name], number)
            elif number != self._versions[name]:
                continue
            elif what == _ENDS:
                self._end(self._replicas[name])
            else:
                self._begin(self._replicas[name])
        found = [v for replica in self._replicas.values() for v in replica.violations()]
        found += self._front.violations()
        return Simulation(
            calls=self._records,
            programs=[
                program_record(name, p.arrival_s, p.records) for name, p in self._programs.items()
            ],
            end_s=self._now,
            violations=tuple(found),
        )

    def _push(self, at: float, what: int, name: str, number: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, what, self._number, name, number))

    def _come(self, program: _Program, number: int) -> None:
        now, front, id_ = self._now, self._front, program.ready.id
        if not program.records:
            front.begin(id_, now)
        ready = program.ready.calls[number]
        parts = program.parts[number]
        call = f"{id_}/{number}"
        told = sum(program.costs) if self._tells else None
        tags = tags_of(parts) if self._setup.engine.tags else None
        name, context = front.place(
            id_,
            str(number),
            call,
            ready.prompt_tokens,
            now,
            parts=parts,
            tags=tags,
            remaining_s=told,
        )
        replica = self._replicas[name]
        prompt = replica.prompt(id_, parts)
        answer = place(ready.call.answer or f"answer/{call}")
        ends = replica.add(context, prompt, answer, ready.max_tokens, now)
        record = CallRecord(id_, number, name, now, prompt.length)
        program.records.append(record)
        self._records.append(record)
        self._calls[call] = (program, number, record)
        if not replica.busy:
            self._schedule(replica, _BEGINS, now)
        elif ends is not None:
            self._schedule(replica, _ENDS, ends)

    def _schedule(self, replica: Replica, what: int, at: float) -> None:
        """What is to happen to a replica next, in place of what was to happen before."""
        self._versions[replica.name] += 1
        self._push(at, what, replica.name, self._versions[replica.name])

    def _begin(self, replica: Replica) -> None:
        ends = replica.start(self._now)
        if ends is None:
            return
        for call in replica.started:
            record = self._calls[call][2]
            if record.start_s < 0:
                record.start_s = self._now
        replica.started = []
        self._schedule(replica, _ENDS, ends)

    def _end(self, replica: Replica) -> None:
        happened = replica.finish(self._now)
        for call in happened.first_tokens:
            self._calls[call][2].first_token_s = self._now
        for report in happened.reports:
            self._answered(report)
        self._schedule(replica, _BEGINS, self._now)

    def _answered(self, report: CallReport) -> None:
        now = self._now
        program, number, record = self._calls.pop(report.call)
        self._front.close(report, now)
        record.end_s = answered = now + on_tick(self._replicas[record.replica].shape.call_s)
        record.service_s = report.service_s
        record.waiting_s = report.waiting_s
        record.cached_tokens = report.cached_tokens
        record.output_tokens = report.output_tokens
        record.preemptions = report.preemptions
        record.recomputed_tokens = report.recomputed_tokens
        record.blocks_swapped_out = report.blocks_swapped_out
        record.blocks_swapped_in = report.blocks_swapped_in
        program.unanswered -= 1
        program.costs[number] = 0.0
        if not program.unanswered:
            self._front.end(program.ready.id, now)
        for follower in program.followers[number]:
            needs = program.needs[follower]
            needs.discard(number)
            due = answered + on_tick(program.ready.calls[number].call.gap_s)
            program.due[follower] = due = max(program.due[follower], due)
            if not needs:
                self._push(due, _COMES, program.ready.id, follower)


def _front(replicas: Mapping[str, Replica], setup: Setup) -> Front:
    tree, balancer = None, setup.balancer
    if balancer == PREFIX_TREE:
        room = {r.name: r.shape.kv_blocks * r.shape.block_tokens for r in replicas.values()}
        tree, balancer = PrefixTree(room), "least_used"
    rng = stream(setup.seed, "router")
    return Front(list(replicas), balancer, rng, setup.threshold_tokens, tree)


def _program(
    ready: ReadyProgram,
    arrival_s: float,
    alone: Callable[[int, int], float],
    bytes_per_token: float,
) -> _Program:
    needs = [set(call.call.needs(number)) for number, call in enumerate(ready.calls)]
    followers: list[list[int]] = [[] for _ in ready.calls]
    costs = []
    seen: Seen = {}
    for number, call in enumerate(ready.calls):
        for needed in needs[number]:
            followers[needed].append(number)
        known = max((ready.calls[n].prompt_tokens for n in needs[number]), default=0)
        costs.append(alone(max(0, call.prompt_tokens - known), call.max_tokens))
    return _Program(
        ready=ready,
        arrival_s=arrival_s,
        parts=[parts_of(call, seen, bytes_per_token) for call in ready.calls],
        costs=costs,
        needs=needs,
        followers=followers,
        due=[arrival_s] * len(ready.calls),
        unanswered=len(ready.calls),
    )


@contextmanager
def _without_collections() -> Iterator[None]:
    """What is alive is not looked through again and again: a simulation leaves no cycles to find
    but what the schedulers are made of."""
    gc.freeze()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.unfreeze()
