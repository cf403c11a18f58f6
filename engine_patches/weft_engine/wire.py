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
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

CALL_HEADER: Final = "x-weft-call"
REPORT_HEADER: Final = "x-weft-report"
REPORT_COMMENT: Final = b": weft-report "

# Names of the entries of `vllm_xargs`.
_PREFIX: Final = "weft_"
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
XARG_LEFT: Final = "weft_left"
XARG_PATH: Final = "weft_path"
XARG_DEADLINE: Final = "weft_deadline"
XARG_TAGS: Final = "weft_tags"
XARG_RETAIN: Final = "weft_retain"
XARG_RETAIN_TOKENS: Final = "weft_retain_tokens"
XARG_PRIORITY: Final = "weft_priority"

# The names of the plugin's orders; the registry has one entry for each.
ORDER_NAMES: Final = (
    "fcfs", "program_fifo", "resident", "slack", "mlfq", "plas", "atlas", "urgency",
)  # fmt: skip

# The longest name of another program in a report.
MAX_PROGRAM: Final = 256

# Larger values are invalid: thirty thousand years as a duration, and no plausible Unix time.
_Instant = Annotated[float, Field(strict=True, ge=0, le=1e12, allow_inf_nan=False)]
# The time until a target, negative after it.
_Left = Annotated[float, Field(strict=True, ge=-1e12, le=1e12, allow_inf_nan=False)]
# The bounds of the gateway's keys file. With wider ones, sums of weights would lose small ones.
_Weight = Annotated[float, Field(strict=True, ge=0.001, le=1000, allow_inf_nan=False)]
_Integer = Annotated[int, Field(strict=True)]
# Limits of a report: four months, and more tokens than any context has.
_Seconds = Annotated[float, Field(ge=0, le=1e7)]
_Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
# Not bounded by how long a call takes.
_Age = Annotated[float, Field(ge=0, le=1e12)]
_Program = Annotated[str, Field(max_length=MAX_PROGRAM)]


@dataclass(frozen=True, slots=True)
class CallContext:
    """The attributes of a call and its program for the engine's scheduler (Algorithm 1, line 11).

    call: the gateway's unique id of this call. program: opaque id of its program, unique over
    tenants. service_s, waiting_s: service and waiting time of the program's finished calls,
    seconds. critical_path_s: the longest chain of finished calls seen in the program, seconds.
    arrival_s: Unix time at which the program arrived, seconds. budget_s, cost_s: the call's part of
    its program's deadline and its expected cost, seconds. left_s: until the target of its program
    or turn at sending, negative after it; path_s: the predicted service of this call and of the
    later ones on the path; deadline_s: from the arrival of the program to the target, seconds.
    tags: tags of the prompt's tokens, a flat list of ends and tags (`weft_engine.tags`). retain_s:
    pin the
    call's blocks for this many seconds; retain_tokens: only those of the first tokens of the
    prompt, up to this number. priority: raise or lower its tags by this many tiers. None: not
    given. ignored: names of entries with invalid values, which count as absent. tenant: a digest of
    the call's API key, "" for calls without one; weight: the tenant's share of engine time relative
    to other tenants, 0.001 to 1000.
    """

    call: Annotated[str, Field(alias=XARG_CALL)]
    program: Annotated[str, Field(alias=XARG_PROGRAM)]
    service_s: Annotated[_Instant, Field(alias=XARG_SERVICE)] = 0.0
    waiting_s: Annotated[_Instant, Field(alias=XARG_WAITING)] = 0.0
    arrival_s: Annotated[_Instant, Field(alias=XARG_ARRIVAL)] = 0.0
    critical_path_s: Annotated[_Instant, Field(alias=XARG_CRITICAL_PATH)] = 0.0
    budget_s: Annotated[_Instant | None, Field(alias=XARG_BUDGET)] = None
    cost_s: Annotated[_Instant | None, Field(alias=XARG_COST)] = None
    tags: Annotated[tuple[_Integer, ...] | None, Field(alias=XARG_TAGS, fail_fast=True)] = None
    retain_s: Annotated[_Instant | None, Field(alias=XARG_RETAIN)] = None
    priority: Annotated[_Integer | None, Field(alias=XARG_PRIORITY)] = None
    retain_tokens: Annotated[_Integer | None, Field(alias=XARG_RETAIN_TOKENS, ge=0)] = None
    ignored: tuple[str, ...] = ()
    tenant: Annotated[str, Field(alias=XARG_TENANT)] = ""
    weight: Annotated[_Weight, Field(alias=XARG_WEIGHT)] = 1.0
    left_s: Annotated[_Left | None, Field(alias=XARG_LEFT)] = None
    path_s: Annotated[_Instant | None, Field(alias=XARG_PATH)] = None
    deadline_s: Annotated[_Instant | None, Field(alias=XARG_DEADLINE)] = None

    def to_xargs(self) -> dict[str, str | float | list[int]]:
        """Return the flat `vllm_xargs` entries that carry this context."""
        xargs: dict[str, str | float | list[int]] = _CONTEXT.dump_python(
            self, mode="json", by_alias=True, exclude=_NO_ENTRY, exclude_none=True
        )
        if not self.tenant:
            del xargs[XARG_TENANT]
        if self.weight == 1.0:
            del xargs[XARG_WEIGHT]
        return xargs

    @classmethod
    def from_xargs(cls, xargs: Mapping[str, Any] | None) -> CallContext | None:
        """Parse a context; None if the call did not come through Weft.

        Never fails a call: an entry with an invalid value counts as absent, and `ignored` names it.
        """
        if not xargs or XARG_CALL not in xargs:
            return None
        given = {
            name: value
            for name, value in xargs.items()
            if value is not None and name.startswith(_PREFIX)
        }
        call = given[XARG_CALL] = str(xargs[XARG_CALL])
        given[XARG_PROGRAM] = str(given.get(XARG_PROGRAM, call))
        given[XARG_TENANT] = str(given.get(XARG_TENANT, ""))
        try:
            return _CONTEXT.validate_python(given)
        except ValidationError as error:
            ignored = tuple(str(one["loc"][0]) for one in error.errors(include_input=False))
        for name in ignored:
            del given[name]
        if XARG_RETAIN_TOKENS in ignored:
            # Do not retain more than the client asked for.
            given.pop(XARG_RETAIN, None)
        return replace(_CONTEXT.validate_python(given), ignored=ignored)


_CONTEXT: Final = TypeAdapter(CallContext)
_NO_ENTRY: Final = {"ignored"}


@dataclass(frozen=True, slots=True)
class CallReport:
    """The engine's report of one call, cumulative over its sequences (`n`, several prompts).

    service_s, waiting_s: seconds. Token counts are totals. queue_path: the queues that the call was
    in, in order; 0 is the best. finished: no sequence of the call is alive. memory_wait_s: the part
    of waiting_s in which the call was deferred for KV memory, seconds. memory_tokens: its context,
    and programs_ahead: the programs that kept memory or were deferred before it, both when it was
    deferred first. cached_tokens: found in the cache or in other memory; loaded_tokens: those that
    a KV connector loaded. evicted_tokens: computed although they had been cached before;
    evicted_by: the program (CallContext) whose calls took most of their memory, "" if unknown, and
    evicted_s: how long before the call ran. emptied_s: how long before the cache was emptied as a
    whole, 0 if never.

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
    memory_wait_s: _Seconds = 0.0
    memory_tokens: _Count = 0
    programs_ahead: _Count = 0
    loaded_tokens: _Count = 0
    evicted_tokens: _Count = 0
    evicted_by: _Program = ""
    evicted_s: _Age = 0.0
    emptied_s: _Age = 0.0

    def to_json(self) -> str:
        """Return one line of compact ASCII JSON, which fits a header and an SSE comment."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> CallReport:
        """Parse a report. Unknown fields are ignored. ValueError names an invalid field."""
        return _REPORT.validate_json(text)


_REPORT: Final = TypeAdapter(CallReport)
