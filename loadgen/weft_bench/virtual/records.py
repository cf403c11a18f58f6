"""Results of a simulation: a record of each call and of each program. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft_gateway.model.slo import CallBudget


@dataclass(slots=True)
class CallRecord:
    """One call. Instants are seconds since the start; durations are seconds.

    arrival_s: when it reached the gateway. start_s: when an engine first computed for it.
    first_token_s, end_s: of its answer. service_s, waiting_s and the counts: from the engine's
    report.
    """

    program: str
    number: int
    replica: str
    arrival_s: float
    prompt_tokens: int
    start_s: float = -1.0
    first_token_s: float = -1.0
    end_s: float = -1.0
    service_s: float = 0.0
    waiting_s: float = 0.0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    blocks_swapped_out: int = 0
    blocks_swapped_in: int = 0


@dataclass(slots=True)
class PrefillRecord:
    """A prefill that ran ahead of a program's call `number`, while tools ran.

    Units as in CallRecord. computed_tokens: tokens added to the cache; fewer than the prompt lacked
    if the prefill was stopped.
    """

    program: str
    number: int
    replica: str
    arrival_s: float
    prompt_tokens: int
    end_s: float = -1.0
    service_s: float = 0.0
    waiting_s: float = 0.0
    cached_tokens: int = 0
    computed_tokens: int = 0


@dataclass(slots=True)
class ProgramRecord:
    """One program from its arrival to its last answer, with sums over its calls.

    replicas: in the order of first use. migrations: calls on another replica than the call before
    them.
    """

    id: str
    arrival_s: float
    end_s: float
    calls: int
    output_tokens: int
    service_s: float
    waiting_s: float
    prompt_tokens: int
    cached_tokens: int
    preemptions: int
    migrations: int
    replicas: tuple[str, ...]

    @property
    def response_s(self) -> float:
        """Seconds from arrival to last answer, tool gaps included."""
        return self.end_s - self.arrival_s

    @property
    def token_latency_s(self) -> float:
        """Response time divided by the program's generated tokens (Agentix 6.2)."""
        return self.response_s / self.output_tokens


@dataclass(frozen=True, slots=True)
class Simulation:
    """All records: calls in the order of arrival, programs in the workload's order.

    end_s: when the last event happened. violations: failed invariants as text. prefills: in the
    order of their requests; not part of any program's sums. budgets: of calls with one, by call.
    speeds: the limits and fitted step costs of each replica at the end, as in `GET /weft/state`.
    tokens: when each token of a call arrived, for each call, if the setup has `watched`.
    held_s: how long answered calls waited for KV memory in their engine, by program and number.
    """

    calls: Sequence[CallRecord]
    programs: Sequence[ProgramRecord]
    end_s: float
    violations: Sequence[str] = field(default_factory=tuple)
    prefills: Sequence[PrefillRecord] = field(default_factory=tuple)
    budgets: Mapping[str, CallBudget] = field(default_factory=dict)
    speeds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tokens: Sequence[Sequence[float]] = field(default_factory=tuple)
    held_s: Mapping[tuple[str, int], float] = field(default_factory=dict)

    def lines(self) -> str:
        """Return all records as JSON lines. Equal simulations give equal bytes."""
        records: list[Any] = [*self.calls, *self.programs, *self.prefills]
        return "".join(json.dumps(asdict(r), separators=(",", ":")) + "\n" for r in records)

    def rendered_s(self) -> list[float]:
        """Return each program's time from arrival to the first token of its last answer, seconds.

        This is FTR (Sutradhara 3.1.1). Programs are in the order of `programs`.
        """
        first: dict[str, tuple[int, float]] = {}
        for call in self.calls:
            at = (call.number, call.first_token_s)
            first[call.program] = max(first.get(call.program, at), at)
        return [first[program.id][1] - program.arrival_s for program in self.programs]


def program_record(id_: str, arrival_s: float, calls: Sequence[CallRecord]) -> ProgramRecord:
    """Sum up a program's calls, which are in the order of arrival. A program without calls was
    refused, and never ends.
    """
    places = [call.replica for call in calls]
    return ProgramRecord(
        id=id_,
        arrival_s=arrival_s,
        end_s=max((call.end_s for call in calls), default=math.inf),
        calls=len(calls),
        output_tokens=sum(call.output_tokens for call in calls),
        service_s=sum(call.service_s for call in calls),
        waiting_s=sum(call.waiting_s for call in calls),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        cached_tokens=sum(call.cached_tokens for call in calls),
        preemptions=sum(call.preemptions for call in calls),
        migrations=sum(a != b for a, b in pairwise(places)),
        replicas=tuple(dict.fromkeys(places)),
    )


@dataclass(frozen=True, slots=True)
class Window:
    """Programs that arrived in [begin_s, end_s).

    loaded: share of them that ended while programs still arrived. The others ended in the drain,
    with less competition. A window with a low share therefore flatters the programs that end last.
    """

    programs: tuple[ProgramRecord, ...]
    begin_s: float
    end_s: float
    loaded: float


def steady(programs: Sequence[ProgramRecord], first: float = 0.25, last: float = 0.75) -> Window:
    """Return the programs that arrived in the middle part of the arrivals.

    The part runs from share `first` to share `last` of the time between the first and the last
    arrival. Before it the system fills up; later programs keep up the load. Raises ValueError if
    the shares are out of order or no program arrived in that part.
    """
    if not 0 <= first < last <= 1:
        raise ValueError(f"a window must lie between 0 and 1, got {first} to {last}")
    arrivals = [program.arrival_s for program in programs]
    if not arrivals:
        raise ValueError("no programs")
    begin, span = min(arrivals), max(arrivals) - min(arrivals)
    start, end = begin + first * span, begin + last * span
    inside = tuple(p for p in programs if start <= p.arrival_s < end)
    if not inside:
        raise ValueError(f"no program arrived between {start:g} s and {end:g} s")
    over = max(arrivals)
    loaded = sum(program.end_s <= over for program in inside) / len(inside)
    return Window(inside, start, end, loaded)
