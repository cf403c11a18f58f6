"""The orders by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from weft_engine.orders.base import CallView, Order
from weft_engine.orders.options import OrderOptions

_PROGRAM_SERVICE: Final = attrgetter("program_service_s")
_PROGRAM_WAITING: Final = attrgetter("program_waiting_s")


def build_order(name: str, options: OrderOptions | Mapping[str, Any]) -> Order:
    """The order with this name. Options of other orders are ignored. ValueError names an unknown
    order or option, or a wrong value."""
    if name not in ORDERS:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(sorted(ORDERS))}")
    return ORDERS[name](OrderOptions.model_validate(options))


def mlfq(options: OrderOptions) -> Order:
    """A multi-level feedback queue per call that ignores programs (the baseline of Agentix 6.1)."""
    return Order("mlfq", ladder=options.ladder, beta=options.beta)


def plas(options: OrderOptions) -> Order:
    """Program-level attained service: the service of the program's finished calls (Agentix
    equation 1). For programs with one thread."""
    return Order(
        "plas",
        ladder=options.ladder,
        beta=options.beta,
        attained=_PROGRAM_SERVICE,
        waited=_PROGRAM_WAITING,
    )


def atlas(options: OrderOptions) -> Order:
    """Adaptive thread-level attained service: the longest critical path seen so far, one number per
    program (Agentix equation 2). All calls of a program enter one queue, so that none straggles."""
    return Order(
        "atlas",
        ladder=options.ladder,
        beta=options.beta,
        attained=attrgetter("critical_path_s"),
        waited=_PROGRAM_WAITING,
    )


def urgency(options: OrderOptions) -> Order:
    """The call with the least slack to its budget first (HexGen-Flow 4.2, equations 7 and 8):
    U = t_comp - (t_SLO - tau), the largest first.

    The time in the queue, tau, grows equally for all waiting calls, so queued + t_SLO - t_comp
    gives the same order and does not change with time. A call whose budget has passed comes first,
    as in the paper. Calls without a budget use default_budget_s, so that they cannot be passed over
    for ever.
    """

    def latest_start(view: CallView) -> float:
        budget = options.default_budget_s if view.budget_s is None else view.budget_s
        return view.queued_s + budget - (view.cost_s or 0.0)

    return Order("urgency", rank=latest_start)


def llf(options: OrderOptions) -> Order:
    """The call of the program with the least laxity first: the time until the program's target
    minus the predicted service of this call and of the later ones on its path, without a budget for
    each call (the baseline LLF of HexGen-Flow 5.1).

    Both shrink alike while a call runs, and only the time left shrinks while it waits, so the
    laxity at sending, from the time of queueing, gives the order. Calls without a target use
    default_budget_s.
    """

    def laxity_s(view: CallView) -> float:
        left_s = options.default_budget_s if view.left_s is None else view.left_s
        return view.queued_s + left_s - (view.path_s or view.cost_s or 0.0)

    return Order("llf", rank=laxity_s)


def qlm(options: OrderOptions) -> Order:
    """Groups of calls with similar deadlines, first come, first served; if the predicted wait
    violates the target of a group, the group with the least remaining time first (the baseline QLM
    of HexGen-Flow 5.1). See slo_groups.py."""
    return Order("qlm", default_left_s=options.default_budget_s, groups=True)


def srpt(options: OrderOptions) -> Order:
    """The program with the least remaining work first: the limit that other orders are measured
    against (Agentix Figure 20). The workload must state the true remaining work, so the order needs
    the option `experiments`. Calls that do not state it come last. A running call only gets
    shorter, so two calls never preempt each other in turn."""
    _only_in_experiments("srpt", options)

    def remaining(view: CallView) -> float:
        return math.inf if view.remaining_s is None else view.remaining_s - view.total_service_s

    return Order("srpt", rank=remaining, margin=options.margin_s, rank_changes=True)


def resident(options: OrderOptions) -> Order:
    """The oldest program first, with admission of programs to the cache (see residents.py)."""
    return Order(
        "resident",
        rank=attrgetter("program_arrival_s"),
        beta=options.beta,
        attained=_PROGRAM_SERVICE,
        waited=_PROGRAM_WAITING,
        residents=True,
        resident_factor=options.resident_factor,
    )


def slack(options: OrderOptions) -> Order:
    """`resident` with the program of the earliest target first, in place of the oldest program. If
    all targets can be met, the earliest one first meets them all on one processor (Liu and
    Layland, 1973). Unlike under HexGen-Flow 4.2, equation 8, no call comes before the calls of
    programs that the cache keeps because its budget ends soon.

    Programs without a target rank as if theirs were default_budget_s after their arrival. So no
    program waits for ever, and without targets the order is `resident`. A late call ranks like one
    without a target, but not before its own target: being late must not be a gain.
    """

    def target(view: CallView) -> float:
        deadline_s = options.default_budget_s if view.deadline_s is None else view.deadline_s
        if view.late:
            deadline_s = max(deadline_s, options.default_budget_s)
        return view.program_arrival_s + deadline_s

    return replace(resident(options), name="slack", rank=target, targets=True)


def resident_srpt(options: OrderOptions) -> Order:
    """`resident` with the true remaining work in place of the learned one: its limit, for
    experiments as `srpt`."""
    _only_in_experiments("resident_srpt", options)
    return replace(resident(options), name="resident_srpt", knows_remaining=True)


def _only_in_experiments(name: str, options: OrderOptions) -> None:
    if not options.experiments:
        raise ValueError(
            f"order {name} needs every program's true remaining work, which no service knows; for "
            "experiments set the option 'experiments': true"
        )


ORDERS: Final[dict[str, Callable[[OrderOptions], Order]]] = {
    # vLLM's own order.
    "fcfs": lambda options: Order("fcfs"),
    # The call of the oldest program. Calls without a program count as the oldest.
    "program_fifo": lambda options: Order("program_fifo", rank=attrgetter("program_arrival_s")),
    "resident": resident,
    "slack": slack,
    "mlfq": mlfq,
    "plas": plas,
    "atlas": atlas,
    "urgency": urgency,
    "qlm": qlm,
    "llf": llf,
    # The program that received the fewest weighted tokens (see token_counters).
    "vtc": lambda options: Order(
        "vtc", rank=attrgetter("program_tokens"), rank_changes=True, counts_tokens=True
    ),
    "srpt": srpt,
    "resident_srpt": resident_srpt,
}
