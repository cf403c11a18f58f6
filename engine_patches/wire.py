"""What the gateway and an engine with our plugin say to each other. Standard library only.

Gateway to engine: flat scalars in `vllm_xargs` (vLLM refuses nested objects) and the
`x-weft-call` header, which names the call for the report channel.

Engine to gateway: one `CallReport` per call. A plain answer carries it in the response header
`x-weft-report`; a streamed answer carries it in an SSE comment, `: weft-report {json}`, sent
before the final `data: [DONE]` frame or at the end of the stream. The gateway removes both.
Service is model execution time (Agentix 4.2.1): the summed duration of the engine steps in which
the call was scheduled. Waiting is time in the engine's queue, after a preemption too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

CALL_HEADER: Final = "x-weft-call"
REPORT_HEADER: Final = "x-weft-report"
REPORT_COMMENT: Final = b": weft-report "

XARG_CALL: Final = "weft_call"
XARG_PROGRAM: Final = "weft_program"
XARG_SERVICE: Final = "weft_service"
XARG_WAITING: Final = "weft_waiting"
XARG_ARRIVAL: Final = "weft_arrival"


@dataclass(frozen=True, slots=True)
class CallContext:
    """What the engine's scheduler is told about a call's program (Algorithm 1, line 11).

    call: the gateway's id of this call, unique. program: opaque id of its program, unique over
    tenants. service_s, waiting_s: what the program's finished calls have used and waited, seconds.
    arrival_s: Unix time at which the program arrived, seconds.
    """

    call: str
    program: str
    service_s: float = 0.0
    waiting_s: float = 0.0
    arrival_s: float = 0.0

    def to_xargs(self) -> dict[str, str | float]:
        """The flat `vllm_xargs` entries that carry this context."""
        return {
            XARG_CALL: self.call,
            XARG_PROGRAM: self.program,
            XARG_SERVICE: self.service_s,
            XARG_WAITING: self.waiting_s,
            XARG_ARRIVAL: self.arrival_s,
        }

    @classmethod
    def from_xargs(cls, xargs: dict[str, Any] | None) -> CallContext | None:
        """Read a context back; None where the call did not come through Weft or is malformed."""
        if not xargs or XARG_CALL not in xargs:
            return None
        try:
            return cls(
                call=str(xargs[XARG_CALL]),
                program=str(xargs.get(XARG_PROGRAM, xargs[XARG_CALL])),
                service_s=max(0.0, float(xargs.get(XARG_SERVICE, 0.0))),
                waiting_s=max(0.0, float(xargs.get(XARG_WAITING, 0.0))),
                arrival_s=max(0.0, float(xargs.get(XARG_ARRIVAL, 0.0))),
            )
        except (TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class CallReport:
    """What the engine did for one call; cumulative over its sequences (`n`, several prompts).

    service_s, waiting_s: seconds. Token counts are totals. queue_path: the queues the call was
    in, first to last, 0 is the best. finished: no sequence of the call is alive.
    """

    call: str
    service_s: float = 0.0
    waiting_s: float = 0.0
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    queue_path: tuple[int, ...] = ()
    policy: str = ""
    finished: bool = True

    def to_json(self) -> str:
        """One line of compact ASCII JSON: fits a header and an SSE comment."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> CallReport:
        """Parse a report; unknown fields are ignored. ValueError if it is not a report."""
        return cls.from_mapping(json.loads(text))

    @classmethod
    def from_mapping(cls, raw: Any) -> CallReport:
        """A report from parsed JSON; unknown fields are ignored. ValueError if it is none."""
        if not isinstance(raw, dict) or not isinstance(raw.get("call"), str):
            raise ValueError("not a call report")
        values = {k: v for k, v in raw.items() if k in _REPORT_FIELDS}
        values["queue_path"] = tuple(values.get("queue_path", ()))
        return cls(**values)


_REPORT_FIELDS: Final = frozenset(field.name for field in fields(CallReport))
