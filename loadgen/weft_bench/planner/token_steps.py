"""Costs of calls in token steps, as in Helium (section 5). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft_gateway.model.record import record


def decode_usage(answer: float) -> float:
    """Return u_d, the tokens that an answer occupies, summed over its steps."""
    return answer * (answer + 1) / 2


def usage(prefill: float, answer: float, alpha: float) -> float:
    """Return u, the token steps of a call. prefill: u_p, prompt tokens that the call before it on
    the worker does not share. alpha: 1 / KV tokens of the worker.
    """
    return alpha * (answer * prefill + decode_usage(answer))


def delay(answer: float, alpha: float, kv_tokens: float) -> float:
    """Return d, the token steps between the end of a call and the start of one that needs it."""
    return alpha * kv_tokens * answer


@record
class Worker:
    """A worker of the token-step model. kv_tokens: M. alpha: 0 for 1 / M."""

    kv_tokens: float
    alpha: float = 0.0

    @property
    def rate(self) -> float:
        """The normalization constant, alpha."""
        return self.alpha or 1 / self.kv_tokens


# Prompt tokens of a call (second) that it does not share with the call before it (first, None for
# the first call of a worker).
Prefill = Callable[[int | None, int], float]


def token_steps(
    orders: Sequence[Sequence[int]],
    answers: Sequence[float],
    needs: Sequence[Sequence[int]],
    prefill: Prefill,
    workers: Sequence[Worker],
) -> float:
    """Return T(sigma), the token step at which the last call ends.

    orders: the calls of each worker in order. answers: expected tokens by call. needs: the calls
    that each call depends on, directly or indirectly. Raises ValueError if calls of these orders
    wait for each other, or for a call that no order contains.
    """
    place = {call: at for at, order in enumerate(orders) for call in order}
    ready: dict[int, float] = {}
    clock, position, end = [0.0] * len(orders), [0] * len(orders), 0.0
    left = len(place)
    while left:
        before = left
        for at, order in enumerate(orders):
            worker = workers[at]
            while position[at] < len(order):
                call = order[position[at]]
                if any(one not in ready for one in needs[call]):
                    break
                last = order[position[at] - 1] if position[at] else None
                begin = max([clock[at], *[ready[one] for one in needs[call]]])
                took = usage(prefill(last, call), answers[call], worker.rate)
                clock[at] = begin + took
                ready[call] = clock[at] + delay(answers[call], worker.rate, worker.kv_tokens)
                end = max(end, clock[at])
                position[at] += 1
                left -= 1
        if left == before:
            raise ValueError("the calls of these orders wait for each other")
    return end
