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

from weft_gateway.model import Program, ReplicaCost, Shared
from weft_gateway.model.record import record
from weft_gateway.policies.recent import ALL, RecentCalls, Sample, Typical

_MAX_KINDS: Final = 1024
# The weight of a sample after the next one.
_FADE: Final = 0.99
_US: Final = 1_000_000
# After so many samples, a fit is solved again for every eighth one.
_STEADY: Final = 64
_STALE: Final = 8


@dataclass(frozen=True, slots=True)
class StepCosts:
    """An engine's step in seconds: step_s, weights_s for reading the weights, and for each prompt
    token, decoding sequence and token of context. Reading the weights hides the arithmetic of a
    small batch. together: the calls that share a step when it has many.
    """

    step_s: float = 0.0
    weights_s: float = 0.0
    prefill_token_s: float = 0.0
    decode_s: float = 0.0
    context_token_s: float = 0.0
    together: float = 1.0

    def token_s(self, context: float) -> float:
        """Return the time per answer token of a call by itself."""
        return self.step_s + max(self.weights_s, self.decode_s) + context * self.context_token_s

    def shared_token_s(self, context: float) -> float:
        """Return the time per answer token that each call costs in a full batch."""
        calls = self.together
        step_s = self.step_s + max(self.weights_s, calls * self.decode_s)
        return step_s / calls + context * self.context_token_s


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """The fit of an engine to its own steps, for as many calls as it has slots. kv_tokens: room for
    contexts, 0 if unknown.
    """

    steps: StepCosts
    kv_tokens: int = 0


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


class Costs:
    """The costs of calls, learned from engines and calls."""

    def __init__(self) -> None:
        self._engines: dict[str, EngineCosts] = {}
        self._calls: OrderedDict[tuple[str, str], _CallFit] = OrderedDict()
        self._recent = RecentCalls()
        # By model and replica, until a sample changes it.
        self._steps: dict[tuple[str, str], StepCosts] = {}
        self._means: dict[str, StepCosts] = {}

    def set_engine(self, replica: str, costs: EngineCosts | None) -> None:
        """Set the fit that an engine reports; None if it reports none any more."""
        if costs == self._engines.get(replica):
            return
        if costs is None:
            del self._engines[replica]
        else:
            self._engines[replica] = costs
        self._drop(self._steps, replica)
        self._means.clear()

    def forget(self, replica: str) -> None:
        """Forget a replica that was removed."""
        self._engines.pop(replica, None)
        self._drop(self._steps, replica)
        self._means.clear()
        self._drop(self._calls, replica)

    def learn(
        self, model: str, replica: str, kind: str, prompt: int, cached: int, output: int,
        service_s: float, beside: int = 1, fit_s: float = 0.0,
    ) -> None:  # fmt: skip
        """Learn from an answered call: tokens, and seconds of engine time. beside: open calls on
        the replica, with this one. fit_s: as predicted, 0 without a prediction.
        """
        uncached = max(prompt - cached, 0)
        fit = self._calls.setdefault((model, replica), _CallFit())
        fit.add(uncached, output, service_s, beside)
        if fit.samples < _STEADY or fit.samples % _STALE == 0:
            self._steps.pop((model, replica), None)
            self._means.pop(model, None)
        if len(self._calls) > _MAX_KINDS:
            self._steps.pop(self._calls.popitem(last=False)[0], None)
        share = uncached / prompt if prompt else 1.0
        error = service_s / fit_s if fit_s else 0.0
        self._recent.add(kind, Sample(prompt, output, share, service_s, error))

    def shape(self, kind: str, prompt: int, max_tokens: int | None) -> Shape | None:
        """Return a call as expected, None before the first sample. max_tokens: the request's limit
        of its answer.
        """
        usual = self._recent.typical(kind)
        return None if usual is None else _shape(usual, prompt, max_tokens)

    def service_s(self, kind: str) -> float:
        """Return the median service of a kind's calls, 0 if unknown."""
        usual = self._recent.typical(kind)
        return 0.0 if usual is None else usual.service_s

    def steps(self, model: str, replica: str) -> StepCosts | None:
        """Return the step costs of a replica: by its engine, else by its calls, else None."""
        found = self._steps.get((model, replica))
        if found is not None:
            return found
        engine, calls = self._engines.get(replica), self._calls.get((model, replica))
        if engine is not None:
            found = self._limited(engine)
        elif calls is not None:
            found = calls.fit()
        else:
            return None
        self._steps[model, replica] = found
        return found

    def predict(self, model: str, kind: str, prompt: int, max_tokens: int | None) -> Predicted:
        """Predict a call on the mean replica (equations 2 and 6)."""
        usual, mean = self._recent.typical(kind), self._mean_steps(model)
        if mean is None or usual is None:
            return Predicted()
        tokens, most = usual.output, usual.output_p90
        if max_tokens is not None:
            tokens, most = min(tokens, max_tokens), min(most, max_tokens)
        prefill_s = mean.prefill_token_s * prompt * usual.uncached
        answer_s = mean.token_s(prompt + tokens / 2) * tokens
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

    def _mean_steps(self, model: str) -> StepCosts | None:
        """Return the mean of the replicas' step costs for a call by itself, None if none is known.
        It is computed when they change: calls ask more often.
        """
        found = self._means.get(model)
        if found is None:
            names = {key[1] for key in self._calls if key[0] == model} | self._engines.keys()
            fits = [fit for fit in (self.steps(model, name) for name in names) if fit is not None]
            if not fits:
                return None
            # The larger of two terms counts, so it is chosen before the mean.
            alone = [replace(fit, weights_s=max(fit.weights_s, fit.decode_s)) for fit in fits]
            found = self._means[model] = _mean(alone)
        return found

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
        fits = {name: self.steps(model, name) for name in names}
        known = [fit for fit in fits.values() if fit is not None]
        usual = self._recent.typical(ALL)
        if not known:
            return None
        mean = None if len(known) == len(fits) else _mean(known)
        every = call if usual is None else _shape(usual, usual.prompt, None)
        return {
            name: _on(fit or mean or known[0], call, cached.get(name, 0), every, work.get(name, 0))
            for name, fit in fits.items()
        }

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


def _shape(usual: Typical, prompt: float, max_tokens: int | None) -> Shape:
    """Return a call like the usual ones, with its own prompt and limit of the answer."""
    most = usual.output_p90 if max_tokens is None else max_tokens
    answer, high = min(usual.output, most), min(usual.output_p90, most)
    return Shape(prompt, 1 - usual.uncached, answer, high, usual.service_s)


def _mean(fits: Collection[StepCosts]) -> StepCosts:
    columns = zip(*map(astuple, fits), strict=True)
    return StepCosts(*[sum(column) / len(fits) for column in columns])


def _on(steps: StepCosts, call: Shape, cached: int, every: Shape, work_us: int) -> ReplicaCost:
    """Return the cost of a call on a replica. every: the usual call, which the replica's batch
    consists of.
    """
    prefill_s = max(0.0, call.prompt - cached) * steps.prefill_token_s
    context = call.prompt + call.answer / 2
    token_s = steps.token_s(context)
    mean_s, mean_busy_s = _alone(steps, every), _in_batch(steps, every)
    queue_s = work_us / _US
    return ReplicaCost(
        prefill_s + call.answer * token_s,
        prefill_s + call.answer_high * token_s,
        queue_s,
        queue_s * mean_busy_s / mean_s if mean_s else queue_s,
        prefill_s + call.answer * steps.shared_token_s(context),
        mean_s,
        min(cached, int(call.prompt)),
    )


def _alone(steps: StepCosts, call: Shape) -> float:
    uncached, context = call.prompt * (1 - call.cached_share), call.prompt + call.answer / 2
    return uncached * steps.prefill_token_s + call.answer * steps.token_s(context)


def _in_batch(steps: StepCosts, call: Shape) -> float:
    uncached, context = call.prompt * (1 - call.cached_share), call.prompt + call.answer / 2
    return uncached * steps.prefill_token_s + call.answer * steps.shared_token_s(context)
