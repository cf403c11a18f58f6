"""The cost of a call on each replica, and of the mean call for budgets. Pure.

The step costs of a replica are those that its engine reports, else a fit to the calls that this
gateway has sent there. Answer lengths and cached shares are learned by kind, a text; the kind ""
stands for all programs, and is used for kinds with few samples.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from weft_run.plan.costs import EngineCosts, StepCosts

from weft_gateway.model import Program, ReplicaCost, Shared
from weft_gateway.model.record import record
from weft_gateway.policies.recent import ALL, RecentCalls, Sample

__all__ = ["EngineCosts", "StepCosts"]

_MAX_KINDS: Final = 1024
# The weight of a sample after the next one.
_FADE: Final = 0.99
_US: Final = 1_000_000
# A fit with this many samples is solved again for every eighth one.
_STEADY: Final = 64
_STALE: Final = 8


@record
class Shape:
    """A call as expected. prompt: tokens; cached_share: of the prompt, on replicas that have the
    program's context. answer: tokens, the median, and answer_high, the 90th percentile. service_s:
    the engine time of such calls.
    """

    prompt: float
    cached_share: float
    answer: float
    answer_high: float
    service_s: float = 0.0


@record
class Predicted:
    """A call's prediction. cost_s: prefill_s plus answer_s, mean over replicas (equation 6), times
    the median error of such predictions; 0 if no engine has reported. later_s: cost of each later
    call. p90_s: 90th percentile of the cost, 0 if unknown. fit_s: the cost without the errors.
    tokens, tokens_p90: of the answer.
    """

    cost_s: float = 0.0
    prefill_s: float = 0.0
    answer_s: float = 0.0
    later_s: float = 0.0
    p90_s: float = 0.0
    fit_s: float = 0.0
    tokens: float = 0.0
    tokens_p90: float = 0.0


@dataclass(slots=True)
class _CallFit:
    """A fit of service = prefill x uncached prompt tokens + decode x output tokens to the calls of
    a replica. beside: mean number of open calls on the replica.
    """

    pp: float = 0.0
    po: float = 0.0
    oo: float = 0.0
    ps: float = 0.0
    os: float = 0.0
    beside: float = 1.0
    samples: int = 0

    def add(self, prompt: int, output: int, service_s: float, beside: int) -> None:
        self.samples += 1
        self.pp = self.pp * _FADE + prompt * prompt
        self.po = self.po * _FADE + prompt * output
        self.oo = self.oo * _FADE + output * output
        self.ps = self.ps * _FADE + prompt * service_s
        self.os = self.os * _FADE + output * service_s
        self.beside = self.beside * _FADE + max(1, beside) * (1 - _FADE)

    def fit(self) -> StepCosts:
        """Return seconds per prompt token and per output token, neither negative."""
        prefill, decode = self._solve()
        return StepCosts(decode, prefill_token_s=prefill, together=self.beside)

    def _solve(self) -> tuple[float, float]:
        determinant = self.pp * self.oo - self.po * self.po
        if determinant > 1e-9 * self.pp * self.oo:
            prefill = (self.ps * self.oo - self.os * self.po) / determinant
            decode = (self.os * self.pp - self.ps * self.po) / determinant
            if prefill >= 0 and decode >= 0:
                return prefill, decode
            if prefill < 0 < self.oo:
                return 0.0, self.os / self.oo
        if self.oo:
            return 0.0, self.os / self.oo
        return (self.ps / self.pp if self.pp else 0.0), 0.0


@dataclass(frozen=True, slots=True)
class _Pace:
    """A replica's step costs, and what follows from them. token_s, shared_token_s: of StepCosts,
    without context. mean_s: the cost of the usual call. drain: time that a batch of usual calls
    takes, as a share of their summed costs.
    """

    steps: StepCosts
    token_s: float
    shared_token_s: float
    mean_s: float
    drain: float


class Costs:
    """The costs of calls, learned from engines and calls."""

    def __init__(self) -> None:
        self._engines: dict[str, EngineCosts] = {}
        self._calls: OrderedDict[tuple[str, str], _CallFit] = OrderedDict()
        self._recent = RecentCalls()
        # By model and replica, until a sample changes it.
        self._paces: dict[tuple[str, str], _Pace] = {}
        # By model, the mean of the replicas' seconds per uncached prompt token, per answer token
        # without context, per token of context, and per pair of `StepCosts`; until one changes.
        self._means: dict[str, tuple[float, float, float, float] | None] = {}
        # By model, until a replica is added or removed.
        self._replicas: dict[str, list[str]] = {}

    def set_engine(self, replica: str, costs: EngineCosts | None) -> None:
        """Set the fit that an engine reports; None if it reports none any more."""
        if costs == self._engines.get(replica):
            return
        if costs is None or replica not in self._engines:
            self._replicas.clear()
        if costs is None:
            del self._engines[replica]
        else:
            self._engines[replica] = costs
        self._means.clear()
        self._drop(self._paces, replica)

    def forget(self, replica: str) -> None:
        """Forget a replica that was removed."""
        self._engines.pop(replica, None)
        self._replicas.clear()
        self._means.clear()
        self._drop(self._paces, replica)
        self._drop(self._calls, replica)

    def learn(
        self, model: str, replica: str, kind: str, prompt: int, cached: int, output: int,
        service_s: float, beside: int = 1, fit_s: float = 0.0,
    ) -> None:  # fmt: skip
        """Learn from an answered call: tokens, and seconds of engine time. beside: open calls on
        the replica, with this one. fit_s: as predicted, 0 without a prediction.
        """
        uncached = max(prompt - cached, 0)
        fit = self._calls.get((model, replica))
        if fit is None:
            fit = self._calls[model, replica] = _CallFit()
            self._replicas.clear()
        fit.add(uncached, output, service_s, beside)
        if fit.samples < _STEADY or fit.samples % _STALE == 0:
            self._paces.pop((model, replica), None)
            self._means.pop(model, None)
        if len(self._calls) > _MAX_KINDS:
            self._paces.pop(self._calls.popitem(last=False)[0], None)
            self._means.clear()
        share = uncached / prompt if prompt else 1.0
        error = service_s / fit_s if fit_s else 0.0
        self._recent.add(kind, Sample(prompt, output, share, service_s, error))

    def shape(self, kind: str, prompt: int, max_tokens: int | None) -> Shape | None:
        """Return a call as expected, None before the first sample. max_tokens: the request's limit
        of its answer.
        """
        usual = self._recent.typical(kind)
        if usual is None:
            return None
        most = usual.output_p90 if max_tokens is None else max_tokens
        answer, high = min(usual.output, most), min(usual.output_p90, most)
        return Shape(prompt, 1 - usual.uncached, answer, high, usual.service_s)

    def knows(self, kind: str) -> bool:
        """Whether predictions for a kind come from calls of this kind."""
        return self._recent.knows(kind)

    def speed(self, replica: str) -> tuple[float, float] | None:
        """Return a replica's seconds per uncached prompt token and per answer token of the usual
        call by itself, mean over the models; None if unknown.
        """
        models = [""] if replica in self._engines else [m for m, r in self._calls if r == replica]
        steps = [pace.steps for m in models if (pace := self._pace(m, replica)) is not None]
        if not steps:
            return None
        usual, mean = self._recent.typical(ALL), _mean(steps)
        if usual is None:
            return mean.prefill_token_s, mean.token_s(0.0)
        fresh = max(1.0, usual.prompt * usual.uncached)
        prefill_s = mean.prefill_s(fresh, usual.prompt) / fresh
        return prefill_s, mean.token_s(usual.prompt + usual.output / 2)

    def predict(self, model: str, kind: str, prompt: int, max_tokens: int | None) -> Predicted:
        """Predict a call on the mean replica (equations 2 and 6)."""
        usual = self._recent.typical(kind)
        if usual is None:
            return Predicted()
        tokens, most = usual.output, usual.output_p90
        if max_tokens is not None:
            tokens, most = min(tokens, max_tokens), min(most, max_tokens)
        uncached, context = prompt * usual.uncached, prompt + tokens / 2
        means = self._mean_costs(model)
        if means is None:
            return Predicted()
        prefill_s = (means[0] + (prompt - uncached / 2) * means[3]) * uncached
        answer_s = (means[1] + context * means[2]) * tokens
        fit_s, error = prefill_s + answer_s, usual.error
        # By position: keywords would double the cost.
        return Predicted(
            fit_s * error,
            prefill_s * error,
            answer_s * error,
            usual.service_s,
            fit_s * usual.error_p90,
            fit_s,
            tokens,
            most,
        )

    def by_replica(
        self,
        model: str,
        names: Collection[str],
        call: Shape,
        cached: Mapping[str, int],
        work: Mapping[str, int],
    ) -> Mapping[str, ReplicaCost] | None:
        """Return the cost of a call on each of these replicas; None if nothing is known of any.

        A replica of which nothing is known costs as much as the mean of the others. cached: tokens
        of the prompt by replica. work: the predicted costs of open calls by replica, microseconds.
        """
        paces = {name: self._pace(model, name) for name in names}
        if None in paces.values():
            known = [pace.steps for pace in paces.values() if pace is not None]
            if not known:
                return None
            mean = self._paced(_mean(known))
            paces = {name: pace or mean for name, pace in paces.items()}
        prompt, answer, context = call.prompt, call.answer, call.prompt + call.answer / 2
        found = {}
        # Without calls of functions: each call of a client waits for this.
        for name, pace in paces.items():
            assert pace is not None
            known_tokens = cached.get(name, 0) if cached else 0
            steps = pace.steps
            fresh = prompt - known_tokens if known_tokens < prompt else 0.0
            prefill_s = fresh * (
                steps.prefill_token_s + (prompt - fresh / 2) * steps.prefill_pair_s
            )
            context_s = context * steps.context_token_s
            token_s = pace.token_s + context_s
            queue_s = work[name] / _US if name in work else 0.0
            found[name] = ReplicaCost(
                prefill_s + answer * token_s,
                prefill_s + call.answer_high * token_s,
                queue_s,
                queue_s * pace.drain,
                prefill_s + answer * (pace.shared_token_s + context_s),
                pace.mean_s,
                known_tokens,
            )
        return found

    def _mean_costs(self, model: str) -> tuple[float, float, float, float] | None:
        """Return `_means` of a model, None if no replica's costs are known."""
        if model not in self._means:
            paces = [self._pace(model, name) for name in self._replicas_of(model)]
            known = [
                (
                    pace.steps.prefill_token_s,
                    pace.token_s,
                    pace.steps.context_token_s,
                    pace.steps.prefill_pair_s,
                )
                for pace in paces
                if pace is not None
            ]
            means = [sum(column) / len(known) for column in zip(*known, strict=True)]
            self._means[model] = (means[0], means[1], means[2], means[3]) if known else None
        return self._means[model]

    def _replicas_of(self, model: str) -> Collection[str]:
        """Return the replicas of which costs are known."""
        found = self._replicas.get(model)
        if found is None:
            called = {replica for name, replica in self._calls if name == model}
            found = self._replicas[model] = sorted(called | self._engines.keys())
        return found

    def _pace(self, model: str, replica: str) -> _Pace | None:
        """Return the costs of a replica: by its engine, else by its calls, else None."""
        found = self._paces.get((model, replica))
        if found is not None:
            return found
        engine, calls = self._engines.get(replica), self._calls.get((model, replica))
        if engine is not None:
            found = self._paced(self._limited(engine))
        elif calls is not None:
            found = self._paced(calls.fit())
        else:
            return None
        self._paces[model, replica] = found
        return found

    def _paced(self, steps: StepCosts) -> _Pace:
        """Return the step costs with those of the usual call."""
        token_s, shared_s = steps.token_s(0.0), steps.shared_token_s(0.0)
        usual = self._recent.typical(ALL)
        if usual is None:
            return _Pace(steps, token_s, shared_s, 0.0, 1.0)
        context_s = (usual.prompt + usual.output / 2) * steps.context_token_s
        prefill_s = steps.prefill_s(usual.prompt * usual.uncached, usual.prompt)
        mean_s = prefill_s + usual.output * (token_s + context_s)
        busy_s = prefill_s + usual.output * (shared_s + context_s)
        return _Pace(steps, token_s, shared_s, mean_s, busy_s / mean_s if mean_s else 1.0)

    @staticmethod
    def _drop(known: dict[tuple[str, str], Any], replica: str) -> None:
        for key in [key for key in known if key[1] == replica]:
            del known[key]

    def _limited(self, engine: EngineCosts) -> StepCosts:
        """Return an engine's costs with the number of usual calls that fit into its memory."""
        usual = self._recent.typical(ALL)
        if usual is None or not engine.kv_tokens:
            return engine.steps
        fit = engine.kv_tokens / max(1.0, usual.prompt + usual.output)
        return replace(engine.steps, together=max(1.0, min(engine.steps.together, fit)))


def cached_tokens(
    program: Program | None, prompt: int, share: float, shared: Shared | None = None
) -> dict[str, int]:
    """Return the tokens of a prompt that replicas have cached, as far as known. share: of the
    prompt, on the program's home and the replica of its last call. shared: known copies of the
    prompt's beginning.
    """
    found = dict(shared.tokens) if shared is not None else {}
    if program is not None and program.calls_closed:
        own = int(prompt * share)
        for name in (program.home, program.last_replica):
            if name:
                found[name] = max(own, found.get(name, 0))
    return found


def _mean(fits: Collection[StepCosts]) -> StepCosts:
    columns = zip(*map(astuple, fits), strict=True)
    return StepCosts(*[sum(column) / len(fits) for column in columns])
