"""Orders by name. A new order is one module and one line here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from weft_engine.orders.atlas import Atlas
from weft_engine.orders.base import Order
from weft_engine.orders.fcfs import Fcfs
from weft_engine.orders.mlfq import Mlfq
from weft_engine.orders.plas import Plas
from weft_engine.orders.program_fifo import ProgramFifo
from weft_engine.orders.srpt import Srpt
from weft_engine.orders.urgency import Urgency
from weft_engine.orders.vtc import Vtc
from weft_engine.orders.warm_plas import WarmPlas
from weft_engine.queues import QueueLadder

Options = Mapping[str, Any]

ORDERS: Final[dict[str, Callable[[Options], Order]]] = {
    "fcfs": lambda options: Fcfs(),
    "program_fifo": lambda options: ProgramFifo(),
    "mlfq": lambda options: Mlfq(ladder_from(options), _number(options, "beta", 10.0)),
    "warm_plas": lambda options: WarmPlas(
        ladder_from(options),
        _number(options, "beta", 10.0),
        lead=_number(options, "lead", 2.0),
        keep_share=_number(options, "keep_share", 0.25),
    ),
    "plas": lambda options: Plas(ladder_from(options), _number(options, "beta", 10.0)),
    "atlas": lambda options: Atlas(ladder_from(options), _number(options, "beta", 10.0)),
    "urgency": lambda options: Urgency(_number(options, "default_budget_s", 60.0)),
    "vtc": lambda options: Vtc(),
    "srpt": lambda options: Srpt(
        options.get("experiments") is True, _number(options, "margin_s", 0.0)
    ),
}
_OPTIONS: Final = frozenset(
    {
        "queues",
        "first_quantum_s",
        "growth",
        "beta",
        "lead",
        "keep_share",
        "default_budget_s",
        "experiments",
        "margin_s",
    }
)


def build_order(name: str, options: Options) -> Order:
    """The order of that name. Options that belong to other orders are not used, so that orders
    can be switched. ValueError names what is wrong or unknown."""
    if name not in ORDERS:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(sorted(ORDERS))}")
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise ValueError(f"unknown options {unknown}; known: {', '.join(sorted(_OPTIONS))}")
    return ORDERS[name](options)


def ladder_from(options: Options) -> QueueLadder:
    """The queue ladder that the options describe; ValueError names what is wrong."""
    return QueueLadder(
        count=int(_number(options, "queues", 8)),
        first_quantum_s=_number(options, "first_quantum_s", 0.5),
        growth=_number(options, "growth", 2.0),
    )


def _number(options: Options, name: str, default: float) -> float:
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"option {name} must be a number, got {value!r}")
    return float(value)
