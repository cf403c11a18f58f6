"""The state that all connections of a simulated replica share."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from weft_engine.wire import CallContext, CallReport

from weft_bench.simulated import tokens
from weft_bench.simulated.calls import AnsweredCalls
from weft_bench.simulated.dialects import Asked, Dialect, Refused
from weft_bench.simulated.engine import Engine, Work
from weft_bench.simulated.faults import Faults
from weft_bench.simulated.pace import Pace, Sink

# The same limit as in the plugin's report server.
_KEPT_REPORTS: Final = 8192
# Number of answers that a client can continue. Each is kept with its whole prompt.
_KEPT_ANSWERS: Final = 1024

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class About:
    """A replica's description of itself.

    model: name of its only model. answer_tokens: length of an answer without a limit. context:
    longest call in tokens. preset, scheduler: names. secret: required by `/weft/*` and
    `/simulated/*`; "" to require none.
    """

    model: str
    answer_tokens: int
    context: int
    preset: str
    scheduler: str
    speed_up: float
    secret: str = ""


@dataclass(slots=True)
class Counters:
    """Calls since the start. `running` is the current number in the engine's queue or batch."""

    requests: int = 0
    running: int = 0
    aborted: int = 0


@dataclass(slots=True)
class Service:
    """One replica. Build it on a running event loop."""

    about: About
    engine: Engine
    faults: Faults = field(default_factory=Faults)
    counters: Counters = field(default_factory=Counters)
    pace: Pace = field(init=False)
    reports: OrderedDict[str, CallReport] = field(default_factory=OrderedDict)
    # The text up to an answer's end, by the answer's id.
    told: OrderedDict[str, bytes] = field(default_factory=OrderedDict)
    answered: AnsweredCalls = field(default_factory=AnsweredCalls)
    # The first answer number. It is random, so that the ids of two replicas differ.
    first: int = field(default_factory=lambda: secrets.randbits(48) << 32)

    def __post_init__(self) -> None:
        self.pace = Pace(self.engine, self.about.speed_up, self._keep)

    def read(self, dialect: type[Dialect], body: Mapping[str, Any]) -> Dialect:
        """Read a call and return the answer to send. Raises Refused."""
        model = body.get("model")
        if model is not None and model != self.about.model:
            raise Refused(f"The model `{model}` does not exist.", 404)
        try:
            asked = dialect.read(body, self.told)
        except Refused:
            raise
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # Any other field may hold a value of the wrong type.
            raise Refused(f"the call cannot be read: {error}") from None
        text, cut_off = self._answer(asked)
        self.counters.requests += 1
        number = self.first + self.counters.requests
        answer = dialect(self.about.model, number, asked, text, cut_off)
        length = len(asked.prompt) // tokens.TOKEN_BYTES + answer.tokens
        if length > self.about.context or not self.engine.fits(length):
            raise Refused(
                f"This model's maximum context length is {self.about.context} tokens, or what its "
                f"KV cache holds. The call has {length} tokens."
            )
        return answer

    def begin(self, answer: Dialect, call: str, body: Mapping[str, Any], sink: Sink) -> str:
        """Pass a call to the engine.

        call: its name in the report channel, or "". Returns the name for `Pace.abort`.
        """
        prompt = answer.asked.prompt
        context = CallContext.from_xargs(_mapping(body.get("vllm_xargs")))
        if context is None:
            context = CallContext(call=call or answer.id, program=call or answer.id)
        text = prompt + tokens.pad(answer.text.encode())
        if answer.kind == "resp" and body.get("store") is not False:
            _put(self.told, answer.id, text, _KEPT_ANSWERS)
        work = Work(context, text, len(prompt) // tokens.TOKEN_BYTES, answer.tokens)
        return self.pace.add(work, sink)

    def _answer(self, asked: Asked) -> tuple[str, bool]:
        """Return the answer's text, and whether the call's limit cuts it off."""
        if asked.tool is not None:
            text = asked.tool.arguments
            size = asked.limit * tokens.TOKEN_BYTES
            return (text[:size], True) if 0 < size < len(text) else (text, False)
        own = self.about.answer_tokens
        if asked.exactly and asked.limit:
            return tokens.words(asked.limit), True
        if asked.limit and asked.limit <= own:
            return tokens.words(asked.limit), True
        return tokens.words(own), False

    def _keep(self, report: CallReport) -> None:
        _put(self.reports, report.call, report, _KEPT_REPORTS)


def _put(kept: OrderedDict[str, _V], name: str, value: _V, most: int) -> None:
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > most:
        kept.popitem(last=False)


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None
