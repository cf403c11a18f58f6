"""The orders by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from weft_engine.orders.base import CallView, Order
from weft_engine.orders.ladder import QueueLadder
from weft_engine.orders.warm_plas import warm_plas

Options = Mapping[str, Any]

_PROGRAM_SERVICE: Final = attrgetter("program_service_s")
_PROGRAM_WAITING: Final = attrgetter("program_waiting_s")


def build_order(name: str, options: Options) -> Order:
    """The order with this name. Options of other orders are ignored, so that you can switch orders
    at run time. ValueError names an unknown order or option, or a wrong value."""
    if name not in ORDERS:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(sorted(ORDERS))}")
    options = _renamed(options)
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise ValueError(f"unknown options {unknown}; known: {', '.join(sorted(_OPTIONS))}")
    return ORDERS[name](options)


def ladder_from(options: Options) -> QueueLadder:
    """The queues that the options describe. ValueError names a wrong option."""
    return QueueLadder(
        count=int(_number(options, "queues", 8)),
        first_quantum_s=_number(options, "first_quantum_s", 0.5),
        growth=_number(options, "growth", 2.0),
    )


def mlfq(options: Options) -> Order:
    """A multi-level feedback queue per call that ignores programs (the baseline of Agentix 6.1)."""
    return Order("mlfq", ladder=ladder_from(options), beta=_number(options, "beta", 10.0))


def plas(options: Options) -> Order:
    """Program-level attained service: the service of the program's finished calls (Agentix
    equation 1). For programs with one thread."""
    return Order(
        "plas",
        ladder=ladder_from(options),
        beta=_number(options, "beta", 10.0),
        attained=_PROGRAM_SERVICE,
        waited=_PROGRAM_WAITING,
    )


def atlas(options: Options) -> Order:
    """Adaptive thread-level attained service: the longest critical path seen so far, one number per
    program (Agentix equation 2). All calls of a program enter one queue, so that none straggles."""
    return Order(
        "atlas",
        ladder=ladder_from(options),
        beta=_number(options, "beta", 10.0),
        attained=attrgetter("critical_path_s"),
        waited=_PROGRAM_WAITING,
    )


def urgency(options: Options) -> Order:
    """The call with the least slack to its budget first (HexGen-Flow 4.2, equations 7 and 8):
    U = t_comp - (t_SLO - tau), the largest first.

    The time in the queue, tau, grows equally for all waiting calls, so queued + t_SLO - t_comp
    gives the same order and does not change with time. Calls without a budget use default_budget_s,
    so that they cannot be passed over for ever.
    """
    default_s = _number(options, "default_budget_s", 60.0)
    if not default_s > 0:
        raise ValueError(f"default_budget_s must be positive, got {default_s}")

    def latest_start(view: CallView) -> float:
        budget = default_s if view.budget_s is None else view.budget_s
        return view.queued_s + budget - (view.cost_s or 0.0)

    return Order("urgency", rank=latest_start)


def srpt(options: Options) -> Order:
    """The program with the least remaining work first: the limit that other orders are measured
    against (Agentix Figure 20). The workload must state the true remaining work, so the order needs
    the option `experiments`. Calls that do not state it come last. A running call only gets
    shorter, so two calls never preempt each other in turn."""
    if options.get("experiments") is not True:
        raise ValueError(
            "order srpt needs every program's true remaining work, which no service knows; for "
            "experiments set the option 'experiments': true"
        )
    margin_s = _number(options, "margin_s", 0.0)
    if not margin_s >= 0:
        raise ValueError(f"margin_s must be at least 0, got {margin_s}")

    def remaining(view: CallView) -> float:
        return math.inf if view.remaining_s is None else view.remaining_s - view.total_service_s

    return Order("srpt", rank=remaining, margin=margin_s, rank_changes=True)


ORDERS: Final[dict[str, Callable[[Options], Order]]] = {
    # vLLM's own order.
    "fcfs": lambda options: Order("fcfs"),
    # The call of the oldest program. Calls without a program count as the oldest.
    "program_fifo": lambda options: Order("program_fifo", rank=attrgetter("program_arrival_s")),
    "mlfq": mlfq,
    "warm_plas": lambda options: warm_plas(
        ladder_from(options),
        _number(options, "beta", 10.0),
        _number(options, "affinity_levels", 2.0),
        _number(options, "reserve_factor", 0.25),
    ),
    "plas": plas,
    "atlas": atlas,
    "urgency": urgency,
    # The program that received the fewest weighted tokens (see token_counters).
    "vtc": lambda options: Order(
        "vtc", rank=attrgetter("program_tokens"), rank_changes=True, counts_tokens=True
    ),
    "srpt": srpt,
}
_OPTIONS: Final = (
    "queues", "first_quantum_s", "growth", "beta", "affinity_levels", "reserve_factor",
    "default_budget_s", "experiments", "margin_s",
)  # fmt: skip
# Old names and current ones. The old names are accepted for one more version.
DEPRECATED_OPTIONS: Final = {"lead": "affinity_levels", "keep_share": "reserve_factor"}


def _renamed(options: Options) -> Options:
    """The options under their current names. ValueError if both names of an option are given."""
    for old, new in DEPRECATED_OPTIONS.items():
        if old in options:
            if new in options:
                raise ValueError(f"option {old} is the old name of {new}: give only one of them")
            options = {new if name == old else name: value for name, value in options.items()}
    return options


def _number(options: Options, name: str, default: float) -> float:
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"option {name} must be a number, got {value!r}")
    return float(value)
