"""The protocol between the gateway and an engine with Weft's plugin.

Gateway to engine: flat scalars in `vllm_xargs` (vLLM refuses nested objects), and the `x-weft-call`
header, which names the call for the report channel.

Engine to gateway: one `CallReport` per call. A plain response carries it in the header
`x-weft-report`. A streamed response carries it in an SSE comment, `: weft-report {json}`, before
the final `data: [DONE]` frame or at the end of the stream. The gateway removes both. Service is
model execution time (Agentix 4.2.1): the summed duration of the engine steps in which the call was
scheduled. Waiting is time in the engine's queue, including the time after a preemption.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, TypeAdapter

CALL_HEADER: Final = "x-weft-call"
REPORT_HEADER: Final = "x-weft-report"
REPORT_COMMENT: Final = b": weft-report "

XARG_CALL: Final = "weft_call"
XARG_PROGRAM: Final = "weft_program"
XARG_TENANT: Final = "weft_tenant"
XARG_WEIGHT: Final = "weft_weight"
XARG_SERVICE: Final = "weft_service"
XARG_WAITING: Final = "weft_waiting"
XARG_ARRIVAL: Final = "weft_arrival"
XARG_CRITICAL_PATH: Final = "weft_critical_path"
XARG_BUDGET: Final = "weft_budget"
XARG_COST: Final = "weft_cost"
XARG_REMAINING: Final = "weft_remaining"
XARG_TAGS: Final = "weft_tags"
XARG_RETAIN: Final = "weft_retain"
XARG_RETAIN_TOKENS: Final = "weft_retain_tokens"
XARG_PRIORITY: Final = "weft_priority"

# The names of the engine's orders; the registry has one entry for each.
ORDER_NAMES: Final = (
    "fcfs", "program_fifo", "mlfq", "plas", "warm_plas", "atlas", "urgency", "vtc", "srpt",
)  # fmt: skip

# Larger values are invalid: thirty thousand years as a duration, and no plausible Unix time.
_LARGEST_S: Final = 1e12
# Limits of a report: four months, and more tokens than any context has.
_Seconds = Annotated[float, Field(ge=0, le=1e7)]
_Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


@dataclass(frozen=True, slots=True)
class CallContext:
    """The attributes of a call and its program for the engine's scheduler (Algorithm 1, line 11).

    call: the gateway's unique id of this call. program: opaque id of its program, unique over
    tenants. service_s, waiting_s: service and waiting time of the program's finished calls,
    seconds. critical_path_s: the longest chain of finished calls seen in the program, seconds.
    arrival_s: Unix time at which the program arrived, seconds. budget_s, cost_s: the call's part of
    its program's deadline and its expected cost, seconds. remaining_s: the remaining service of the
    program including this call, for experiments. tags: tags of the prompt's tokens, a flat list of
    ends and tags (`weft_engine.tags`). retain_s: pin the call's blocks for this many seconds;
    retain_tokens: only those of the first tokens of the prompt, up to this number. priority: raise
    or lower its tags by this many tiers. None: not given. ignored: names of entries with invalid
    values, which count as absent. tenant: a digest of the call's API key, "" for calls without one;
    weight: the tenant's share of engine time relative to other tenants, positive.
    """

    call: str
    program: str
    service_s: float = 0.0
    waiting_s: float = 0.0
    arrival_s: float = 0.0
    critical_path_s: float = 0.0
    budget_s: float | None = None
    cost_s: float | None = None
    remaining_s: float | None = None
    tags: tuple[int, ...] | None = None
    retain_s: float | None = None
    priority: int | None = None
    retain_tokens: int | None = None
    ignored: tuple[str, ...] = ()
    tenant: str = ""
    weight: float = 1.0

    def to_xargs(self) -> dict[str, str | float | list[int]]:
        """Return the flat `vllm_xargs` entries that carry this context."""
        xargs: dict[str, str | float | list[int]] = {
            XARG_CALL: self.call,
            XARG_PROGRAM: self.program,
            XARG_SERVICE: self.service_s,
            XARG_WAITING: self.waiting_s,
            XARG_ARRIVAL: self.arrival_s,
            XARG_CRITICAL_PATH: self.critical_path_s,
        }
        optional = {
            XARG_TENANT: self.tenant or None,
            XARG_WEIGHT: None if self.weight == 1.0 else self.weight,
            XARG_BUDGET: self.budget_s,
            XARG_COST: self.cost_s,
            XARG_REMAINING: self.remaining_s,
            XARG_TAGS: None if self.tags is None else list(self.tags),
            XARG_RETAIN: self.retain_s,
            XARG_RETAIN_TOKENS: self.retain_tokens,
            XARG_PRIORITY: self.priority,
        }
        xargs.update((name, value) for name, value in optional.items() if value is not None)
        return xargs

    @classmethod
    def from_xargs(cls, xargs: Mapping[str, Any] | None) -> CallContext | None:
        """Parse a context; None if the call did not come through Weft.

        Never fails a call: an entry that is not a finite number from 0 to 1e12 counts as absent,
        and `ignored` names it.
        """
        if not xargs or XARG_CALL not in xargs:
            return None
        ignored: list[str] = []

        def number(name: str) -> float | None:
            value = xargs.get(name)
            if value is None:
                return None
            real = isinstance(value, int | float) and not isinstance(value, bool)
            # A NaN fails both comparisons.
            if real and 0 <= value <= _LARGEST_S:
                return float(value)
            ignored.append(name)
            return None

        def whole(value: Any) -> bool:
            return isinstance(value, int) and not isinstance(value, bool)

        tags = xargs.get(XARG_TAGS)
        if tags is not None and not (isinstance(tags, list | tuple) and all(map(whole, tags))):
            ignored.append(XARG_TAGS)
            tags = None
        priority = xargs.get(XARG_PRIORITY)
        if priority is not None and not whole(priority):
            ignored.append(XARG_PRIORITY)
            priority = None
        retain_s, reach = number(XARG_RETAIN), xargs.get(XARG_RETAIN_TOKENS)
        if reach is not None and not (whole(reach) and reach >= 0):
            # Do not retain more than the client asked for.
            ignored.append(XARG_RETAIN_TOKENS)
            retain_s = reach = None
        weight = number(XARG_WEIGHT)
        if weight == 0:
            ignored.append(XARG_WEIGHT)
        call = str(xargs[XARG_CALL])
        return cls(
            call=call,
            program=str(xargs.get(XARG_PROGRAM, call)),
            service_s=number(XARG_SERVICE) or 0.0,
            waiting_s=number(XARG_WAITING) or 0.0,
            arrival_s=number(XARG_ARRIVAL) or 0.0,
            critical_path_s=number(XARG_CRITICAL_PATH) or 0.0,
            budget_s=number(XARG_BUDGET),
            cost_s=number(XARG_COST),
            remaining_s=number(XARG_REMAINING),
            tags=None if tags is None else tuple(tags),
            retain_s=retain_s,
            priority=priority,
            retain_tokens=reach,
            ignored=tuple(ignored),
            tenant=str(xargs.get(XARG_TENANT, "")),
            weight=weight or 1.0,
        )


@dataclass(frozen=True, slots=True)
class CallReport:
    """The engine's report of one call, cumulative over its sequences (`n`, several prompts).

    service_s, waiting_s: seconds. Token counts are totals. queue_path: the queues that the call was
    in, in order; 0 is the best. finished: no sequence of the call is alive.

    `from_json` checks every field, so later code needs no checks. The constructor checks nothing.
    """

    __pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)

    call: str
    service_s: _Seconds = 0.0
    waiting_s: _Seconds = 0.0
    preemptions: _Count = 0
    prompt_tokens: _Count = 0
    cached_tokens: _Count = 0
    output_tokens: _Count = 0
    queue_path: tuple[_Count, ...] = ()
    policy: str = ""
    finished: bool = True
    recomputed_tokens: _Count = 0
    blocks_swapped_out: _Count = 0
    blocks_swapped_in: _Count = 0
    hints: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return one line of compact ASCII JSON, which fits a header and an SSE comment."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> CallReport:
        """Parse a report. Unknown fields are ignored. ValueError names an invalid field."""
        return _REPORT.validate_json(text)


_REPORT: Final = TypeAdapter(CallReport)
