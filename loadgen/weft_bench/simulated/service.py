"""What all connections of a simulated replica share: the engine, reports, faults, counters."""

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

# As the plugin's hub.
_KEPT_REPORTS: Final = 8192
# Answers that may be continued: whole prompts.
_KEPT_ANSWERS: Final = 1024

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class About:
    """What a replica says of itself. model: the one model's name. answer_tokens: length of answers
    that end by themselves. context: longest call, tokens. preset, scheduler: their names. secret:
    what `/weft/*` and `/simulated/*` ask for, "" for nothing."""

    model: str
    answer_tokens: int
    context: int
    preset: str
    scheduler: str
    speed_up: float
    secret: str = ""


@dataclass(slots=True)
class Counters:
    """Calls since the start; `running` now, in the engine's queue or batch."""

    requests: int = 0
    running: int = 0
    aborted: int = 0


@dataclass(slots=True)
class Service:
    """One replica. Must be built on a running event loop."""

    about: About
    engine: Engine
    faults: Faults = field(default_factory=Faults)
    counters: Counters = field(default_factory=Counters)
    pace: Pace = field(init=False)
    reports: OrderedDict[str, CallReport] = field(default_factory=OrderedDict)
    # What was said up to an answer's end, by the answer's id.
    told: OrderedDict[str, bytes] = field(default_factory=OrderedDict)
    answered: AnsweredCalls = field(default_factory=AnsweredCalls)
    # Answers are numbered from here: no two replicas give the same ids.
    first: int = field(default_factory=lambda: secrets.randbits(48) << 32)

    def __post_init__(self) -> None:
        self.pace = Pace(self.engine, self.about.speed_up, self._keep)

    def read(self, dialect: type[Dialect], body: Mapping[str, Any]) -> Dialect:
        """The answer that a call is to get. Raises Refused."""
        model = body.get("model")
        if model is not None and model != self.about.model:
            raise Refused(f"The model `{model}` does not exist.", 404)
        try:
            asked = dialect.read(body, self.told)
        except Refused:
            raise
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # Whatever else a client may put where something else belongs.
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
        """Hand a call to the engine. call: its name in the report channel, "" for none. Returns
        the name by which it can be aborted."""
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
        """What is said, and whether that is cut off by the call's limit."""
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
