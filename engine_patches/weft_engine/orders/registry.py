"""The orders by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, Final

from weft_engine.call_view import CallView
from weft_engine.late_calls import LateCalls
from weft_engine.orders.base import Order
from weft_engine.orders.options import OrderOptions

# Entry points of further orders. Each names a function like those of ORDERS.
GROUP: Final = "weft.orders"
_PROGRAM_SERVICE: Final = attrgetter("program_service_s")
_PROGRAM_WAITING: Final = attrgetter("program_waiting_s")


def build_order(name: str, options: OrderOptions | Mapping[str, Any]) -> Order:
    """The order with this name: one of the plugin, or one that another package registers. Options
    of other orders are ignored. ValueError names an unknown order or option, or a wrong value."""
    factory = ORDERS.get(name)
    if factory is None:
        found = entry_points(group=GROUP, name=name)
        if not found:
            raise ValueError(f"unknown policy {name!r}; known: {', '.join(order_names())}")
        factory = next(iter(found)).load()
    return factory(OrderOptions.model_validate(options))


def order_names() -> list[str]:
    """The names of all orders, those of other packages included."""
    return sorted({*ORDERS, *entry_points(group=GROUP).names})


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


def resident(options: OrderOptions) -> Order:
    """The oldest program first, with admission of programs to the cache (see residents.py)."""
    return Order(
        "resident",
        rank=attrgetter("program_arrival_s"),
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

    return replace(resident(options), name="slack", rank=target, rule=LateCalls)


ORDERS: Final[dict[str, Callable[[OrderOptions], Order]]] = {
    # vLLM's own order.
    "fcfs": lambda options: Order("fcfs", paces=False),
    # The call of the oldest program. Calls without a program count as the oldest.
    "program_fifo": lambda options: Order("program_fifo", rank=attrgetter("program_arrival_s")),
    "resident": resident,
    "slack": slack,
    "mlfq": mlfq,
    "plas": plas,
    "atlas": atlas,
    "urgency": urgency,
}
