"""The simulation: arrivals, engine steps and answers in the order of virtual time.

At one instant, steps end first, then calls arrive, then steps begin, then programs end. A call that
follows an answer without a gap therefore runs in the next step. An engine is notified of a
program's end after it has begun the next step, as with a client that reads the answer first.
"""

from __future__ import annotations

import gc
import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from weft_engine.emulated.cost_model import on_tick
from weft_engine.emulated.presets import EngineShape
from weft_engine.wire import CallReport
from weft_gateway.model import Outcome
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex
from weft_gateway.policies.route.registry import ALPHA

from weft_bench.virtual.clients import EVERYONE, Clients
from weft_bench.virtual.closed_loop import CHAT, Loop, chat
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.front import LOCALITY_THRESHOLD_TOKENS, Front, tags_of
from weft_bench.virtual.gate import FORCE_S, PauseAndResume
from weft_bench.virtual.overlap import (
    PREFILL_TAGS,
    TAKE_WAIT_S,
    THREAD,
    Overlap,
    Prefills,
    all_done_s,
    complete_at,
    known_before_tools,
    name_of,
)
from weft_bench.virtual.programs import Program, begin_program
from weft_bench.virtual.prompts import place
from weft_bench.virtual.records import CallRecord, PrefillRecord, Simulation, program_record
from weft_bench.virtual.replica import Replica
from weft_bench.workloads.cutting import ReadyProgram
from weft_bench.workloads.streams import stream

_ENDS: Final = 0
_COMES: Final = 1
_AHEAD: Final = 2
_STOPS: Final = 3
_BEGINS: Final = 4
_OVER: Final = 5
_CHAT: Final = 6


@dataclass(frozen=True, slots=True)
class Setup:
    """A simulated setup.

    shapes: one a replica. balancer: a router's name. seed: breaks ties in the
    router, and draws the delays. bytes_per_token: the ratio that estimated the lengths of programs
    of messages. overlap: what the programs' orchestrators do beside their calls. delay_s: mean time
    that a call takes to reach the gateway; each call has a random one, of at most twice the mean.
    delay_token_s: more of the mean for each token of the prompt.
    deadlines: of programs that have one, seconds from their first call. alpha, refuse: as in
    `Front`. clients: of the programs. watched: record when each token of a call arrives. loop: what
    follows the programs with an arrival. gated: calls pass `PauseAndResume`, which chooses their
    replica. clairvoyant: engines are told the program's remaining work in place of its arrival, so
    that the least work comes first.
    """

    shapes: Sequence[EngineShape]
    engine: EngineSettings = field(default_factory=EngineSettings)
    balancer: str = "locality"
    threshold_tokens: int = LOCALITY_THRESHOLD_TOKENS
    seed: int = 0
    bytes_per_token: float = 4.0
    overlap: Overlap = field(default_factory=Overlap)
    delay_s: float = 0.0
    delay_token_s: float = 0.0
    deadlines: Mapping[str, float] = field(default_factory=dict)
    alpha: float = ALPHA
    clients: Clients = EVERYONE
    refuse: bool = False
    watched: bool = False
    loop: Loop | None = None
    gated: bool = False
    clairvoyant: bool = False


def simulate(
    programs: Sequence[ReadyProgram], arrivals: Sequence[float], setup: Setup
) -> Simulation:
    """Play all programs to their end, or to that of a closed loop.

    arrivals: seconds, one a program; with a loop, those of the first programs. Raises ValueError
    for unknown names or settings and for arrivals that do not match; SimulationError for a call
    that no replica can hold.
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
        self._gate = PauseAndResume(_room(self._replicas)) if setup.gated else None
        # Other engines ignore it, and it would interrupt their steps.
        self._tells_ends = setup.overlap.forget and setup.engine.tags
        begin = len(programs) if setup.loop is None else len(arrivals)
        self._programs: dict[str, Program] = {}
        for ready, arrival in zip(programs[:begin], arrivals, strict=True):
            self._begin_program(ready, arrival)
        self._later = deque(programs[begin:])
        self._counted = {one.id for one in programs[: setup.loop.counted]} if setup.loop else set()
        self._chats = 0
        # (instant, event, tie breaker, replica or program, call or version).
        self._events: list[tuple[float, int, int, str, int]] = []
        self._number = 0
        self._versions = dict.fromkeys(self._replicas, 0)
        self._calls: dict[str, tuple[Program, int, CallRecord]] = {}
        self._records: list[CallRecord] = []
        self._held_s: dict[tuple[str, int], float] = {}
        self._prefills = Prefills()
        self._stopping: dict[str, list[str]] = {}
        self._tokens: list[Sequence[float]] = []
        self._now = 0.0
        self._delays = stream(setup.seed, "delays")

    def _begin_program(self, ready: ReadyProgram, arrival_s: float) -> Program:
        if ready.id in self._programs:
            raise ValueError("programs must have distinct names")
        program = begin_program(ready, on_tick(arrival_s), self._setup.bytes_per_token)
        self._programs[ready.id] = program
        return program

    def _send_first(self, program: Program) -> None:
        """The client of a program sends the calls that wait for no other."""
        for number, needed in enumerate(program.needs):
            if not needed:
                self._send(program.arrival_s, program, number)

    def run(self) -> Simulation:
        for program in self._programs.values():
            self._send_first(program)
        if self._setup.loop is not None and self._setup.loop.chats_s:
            self._push(0.0, _CHAT, "", 0)
        events = self._events
        while events and (self._counted or self._setup.loop is None):
            self._now, what, _, name, number = heapq.heappop(events)
            if what == _COMES:
                self._come(self._programs[name], number)
            elif what == _AHEAD:
                self._prefill(self._programs[name], number)
            elif what == _STOPS:
                self._stop(name)
            elif what == _OVER:
                self._over(self._programs[name])
            elif what == _CHAT:
                self._chat()
            elif number != self._versions[name]:
                continue
            elif what == _ENDS:
                self._end(self._replicas[name])
            else:
                self._begin(self._replicas[name])
        found: list[str] = []
        if self._setup.loop is None:
            found = [v for replica in self._replicas.values() for v in replica.violations()]
            found += self._front.violations()
        return Simulation(
            calls=self._records,
            programs=[
                program_record(name, p.arrival_s, p.records) for name, p in self._programs.items()
            ],
            end_s=self._now,
            violations=tuple(found),
            prefills=self._prefills.records,
            budgets=self._front.budgets,
            speeds={name: one.scheduler.speed() for name, one in self._replicas.items()},
            tokens=self._tokens,
            held_s=self._held_s,
        )

    def _push(self, at: float, what: int, name: str, number: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, what, self._number, name, number))

    def _send(self, at: float, program: Program, number: int) -> None:
        """A client sends a call."""
        setup, ready = self._setup, program.ready.calls[number]
        mean_s = setup.delay_s + setup.delay_token_s * ready.prompt_tokens
        delay_s = 2 * mean_s * self._delays.random()
        self._push(at + on_tick(delay_s), _COMES, program.ready.id, number)

    def _come(self, program: Program, number: int) -> None:
        now, front, id_ = self._now, self._front, program.ready.id
        if id_ in front.refused:
            return
        if not program.records:
            front.begin(id_, now)
        waits_for = self._prefills.hold(id_, number, now)
        if waits_for:
            self._push(on_tick(now + TAKE_WAIT_S), _STOPS, waits_for, 0)
            return
        ready = program.ready.calls[number]
        at = ""
        if self._gate is not None:
            if number in program.sent:
                # It was released before its limit of time.
                return
            program.came.setdefault(number, now)
            replica_ = self._gate.arrive(id_, number, ready.prompt_tokens, now)
            if replica_ is None:
                self._push(on_tick(now + FORCE_S), _COMES, id_, number)
                return
            at = replica_
        program.sent.add(number)
        came, prefilled = self._prefills.release(id_, number, now)
        overlap = self._setup.overlap
        parts = program.parts[number]
        call = f"{id_}/{number}"
        tags = tags_of(parts) if self._setup.engine.tags and overlap.tell_tags else None
        tools = ready.call.tool_s
        name, context = front.place(
            id_,
            str(number),
            call,
            ready.prompt_tokens,
            now,
            parts=parts,
            tags=tags,
            retain_s=overlap.retain_s or None if tools else None,
            prefilled=at or prefilled,
        )
        if id_ in front.refused:
            return
        if self._setup.clairvoyant:
            context = replace(context, arrival_s=self._remaining_s(program, number))
        replica = self._replicas[name]
        prompt = replica.prompt(id_, parts)
        answer = place(ready.call.answer or f"answer/{call}")
        if overlap.dispatch and tools:
            replica.tokens.watch(call, complete_at(ready.max_tokens, len(tools)))
        elif self._setup.watched:
            replica.tokens.watch(call, range(1, ready.max_tokens + 1))
        ends = replica.add(context, prompt, answer, ready.max_tokens, now)
        record = CallRecord(id_, number, name, program.came.get(number, came), prompt.length)
        program.records.append(record)
        self._records.append(record)
        self._calls[call] = (program, number, record)
        self._added(replica, ends)

    def _added(self, replica: Replica, ends: float | None) -> None:
        """Schedule a replica that got one more call. ends: the new end of its running step, or
        None.
        """
        if not replica.busy:
            self._schedule(replica, _BEGINS, self._now)
        elif ends is not None:
            self._schedule(replica, _ENDS, ends)

    def _prefill(self, program: Program, number: int) -> None:
        """Prefill the beginning of a turn while the tools run that it waits for."""
        now, id_ = self._now, program.ready.id
        parts = known_before_tools(program.parts[number])
        if not parts:
            return
        call, tokens = name_of(id_, number), sum(part.tokens for part in parts)
        name, context = self._front.place(id_, THREAD, call, tokens, now, tags=PREFILL_TAGS)
        replica = self._replicas[name]
        ends = replica.add(context, replica.prompt(id_, parts), place(f"answer/{call}"), 1, now)
        self._prefills.begin(call, PrefillRecord(id_, number, name, now, tokens))
        self._added(replica, ends)

    def _stop(self, call: str) -> None:
        """Stop a prefill whose turn has waited long enough, if it still runs."""
        record = self._prefills.running(call)
        if record is None:
            return
        replica = self._replicas[record.replica]
        ends = replica.interrupt(self._now)
        if replica.busy:
            self._stopping.setdefault(replica.name, []).append(call)
        else:
            self._stopped(replica, call)
        self._added(replica, ends)

    def _stopped(self, replica: Replica, call: str) -> None:
        """Remove a prefill between two steps, if it still runs."""
        if self._prefills.running(call) is not None:
            computed = replica.computed(call)
            report = replica.abort(call, self._now)
            if report is not None:
                self._prefilled(report, computed - report.cached_tokens, Outcome.ABORTED)

    def _prefilled(self, report: CallReport, computed: int, outcome: Outcome) -> None:
        self._front.close(report, self._now, outcome)
        turn = self._prefills.end(report, max(0, computed), self._now)
        if turn is not None:
            self._push(self._now, _COMES, *turn)

    def _schedule(self, replica: Replica, what: int, at: float) -> None:
        """Replace the next event of a replica."""
        self._versions[replica.name] += 1
        self._push(at, what, replica.name, self._versions[replica.name])

    def _begin(self, replica: Replica) -> None:
        ends = replica.start(self._now)
        if ends is None:
            return
        for call, begun in replica.started:
            # Prefills have no such record.
            record = self._calls[call][2] if call in self._calls else None
            if record is not None and record.start_s < 0:
                record.start_s = begun
        replica.started = []
        self._schedule(replica, _ENDS, ends)

    def _end(self, replica: Replica) -> None:
        happened = replica.finish(self._now)
        for call in happened.first_tokens:
            if call in self._calls:
                self._calls[call][2].first_token_s = self._now
        for report in happened.reports:
            if self._prefills.running(report.call) is not None:
                computed = report.prompt_tokens - report.cached_tokens
                self._prefilled(report, computed, Outcome.OK)
            else:
                self._answered(report)
        for call in self._stopping.pop(replica.name, ()):
            self._stopped(replica, call)
        self._schedule(replica, _BEGINS, self._now)

    def _answered(self, report: CallReport) -> None:
        now = self._now
        program, number, record = self._calls.pop(report.call)
        if self._setup.watched:
            self._tokens.append(self._replicas[record.replica].tokens.take(report.call, now))
        self._front.close(report, now)
        record.end_s = answered = now + on_tick(self._replicas[record.replica].shape.call_s)
        self._held_s[program.ready.id, number] = report.memory_wait_s
        record.service_s = report.service_s
        record.waiting_s = report.waiting_s
        record.cached_tokens = report.cached_tokens
        record.output_tokens = report.output_tokens
        record.preemptions = report.preemptions
        record.recomputed_tokens = report.recomputed_tokens
        if self._gate is not None:
            self._gate.answered(program.ready.id, record.prompt_tokens + record.output_tokens)
            self._release()
        record.blocks_swapped_out = report.blocks_swapped_out
        record.blocks_swapped_in = report.blocks_swapped_in
        program.unanswered -= 1
        if not program.unanswered:
            self._push(answered, _OVER, program.ready.id, 0)
        gap_s = self._gap_s(number, program, record)
        for follower in program.followers[number]:
            needs = program.needs[follower]
            needs.discard(number)
            program.due[follower] = due = max(program.due[follower], answered + on_tick(gap_s))
            if not needs:
                self._send(due, program, follower)
                tools = program.ready.calls[number].call.tool_s
                if self._setup.overlap.split and tools and answered < due:
                    self._push(answered, _AHEAD, program.ready.id, follower)

    def _over(self, program: Program) -> None:
        """End the session of a program, whose client has the last answer."""
        name = program.ready.id
        notified = self._front.end(name, self._now)
        if not self._tells_ends:
            # An orchestrator that pins blocks releases them wherever its calls ran.
            pinned = bool(self._setup.overlap.retain_s)
            notified = tuple(dict.fromkeys(r.replica for r in program.records if pinned))
        what = "forget" if self._tells_ends else "release"
        for place_ in notified:
            replica = self._replicas[place_]
            self._added(replica, replica.send_command(what, name, self._now))
        if self._gate is not None:
            self._gate.over(name)
            self._release()
        self._counted.discard(name)
        if self._later and not name.startswith(CHAT):
            self._send_first(self._begin_program(self._later.popleft(), self._now))

    def _release(self) -> None:
        """The calls that the gate releases arrive."""
        assert self._gate is not None
        for name, number in self._gate.released():
            self._push(self._now, _COMES, name, number)

    def _remaining_s(self, program: Program, number: int) -> float:
        """Return the seconds of a program's calls from this one on, one after another without
        waiting, and of their gaps."""
        if not program.remaining_s:
            cost = next(iter(self._setup.shapes)).cost
            left_s, before = 0.0, [0, *(one.prompt_tokens for one in program.ready.calls)]
            for one, known in zip(reversed(program.ready.calls), before[-2::-1], strict=True):
                fresh = one.prompt_tokens - known if known < one.prompt_tokens else 0
                left_s += cost.step(fresh, 0, 0) + one.max_tokens * cost.step(0, 1, 0)
                program.remaining_s.append(left_s)
                left_s += one.call.gap_s
            program.remaining_s.reverse()
        return program.remaining_s[number]

    def _chat(self) -> None:
        """A single chat arrives beside the programs of a closed loop."""
        assert self._setup.loop is not None
        self._send_first(self._begin_program(chat(self._chats), self._now))
        self._chats += 1
        self._push(on_tick(self._now + self._setup.loop.chats_s), _CHAT, "", 0)

    def _gap_s(self, number: int, program: Program, record: CallRecord) -> float:
        """Return the seconds from an answer to the next turn: its tools and the rest of the gap."""
        call = program.ready.calls[number].call
        if not (self._setup.overlap.dispatch and call.tool_s):
            return call.gap_s
        replica = self._replicas[record.replica]
        there = replica.tokens.take(f"{program.ready.id}/{number}", self._now)
        # The tokens take the same time outside of the engine as the call.
        outside = record.end_s - self._now
        starts = [at + outside for at in there]
        tools_s = all_done_s(record.end_s, starts, call.tool_s) - record.end_s
        return tools_s + max(0.0, call.gap_s - max(call.tool_s))


def _room(replicas: Mapping[str, Replica]) -> dict[str, int]:
    return {r.name: r.shape.kv_blocks * r.shape.block_tokens for r in replicas.values()}


def _front(replicas: Mapping[str, Replica], setup: Setup) -> Front:
    sent = PrefixAffinityIndex(0)
    for name, tokens in _room(replicas).items():
        sent.room(name, tokens)
    rng = stream(setup.seed, "router")
    return Front(
        list(replicas), setup.balancer, rng, setup.threshold_tokens, sent,
        deadlines=setup.deadlines,
        alpha=setup.alpha,
        clients=setup.clients,
        refuse=setup.refuse,
        states={name: replica.scheduler.speed for name, replica in replicas.items()},
    )  # fmt: skip


@contextmanager
def _without_collections() -> Iterator[None]:
    """Turn off garbage collection; a simulation creates no cycles besides the schedulers' own."""
    gc.freeze()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.unfreeze()
