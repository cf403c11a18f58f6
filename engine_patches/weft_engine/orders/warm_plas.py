"""Cache-aware PLAS: programs whose context is still cached run before those whose context is not.

When calls of one queue take turns, each program's context is evicted before its next call arrives
and must be computed again. docs/orders.md describes the trade-off and what was measured.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Final

from weft_engine.orders.base import CallView, Order
from weft_engine.orders.options import OrderOptions

# Uncached tokens are compared in units of about one step's prefill; smaller differences do not
# justify switching between two programs.
_UNIT_TOKENS: Final = 2048
# A prefill this short costs no more than a decode step, which reads the weights anyway.
_FREE_TOKENS: Final = 256
# The rank distance between neighbouring queues that uncached tokens cannot bridge.
_MARGIN: Final = 0.5
# The advantage of promoted calls over cached ones. Below the margin, so that they preempt none.
_PROMOTED: Final = 0.25
_MICROSECONDS: Final = 1e6


def cache_aware_rank(levels: float, view: CallView) -> float:
    """The queue, minus `levels` for a call that runs, has most of its context cached or has next to
    nothing to compute, plus less than half a queue for the tokens to compute. Promoted calls rank
    ahead of cached ones of their queue, so that a stream of these cannot pass them."""
    if view.running:
        return view.queue - levels
    if view.promoted:
        return view.queue - levels - _PROMOTED
    uncached = view.uncached_tokens
    cached = view.cached_tokens > uncached or uncached <= _FREE_TOKENS
    units = uncached // _UNIT_TOKENS
    return view.queue - levels * cached + _MARGIN * units / (1 + units)


def program_arrival_order(view: CallView, entry: int) -> int:
    """By the arrival of the program, then by the entry of the call into its queue."""
    return (int(view.program_arrival_s * _MICROSECONDS) << 40) + entry


def warm_plas(options: OrderOptions) -> Order:
    """PLAS whose ranks prefer cached calls by affinity_levels queues."""
    ladder, levels = options.ladder, options.affinity_levels
    return Order(
        "warm_plas",
        rank=partial(cache_aware_rank, levels),
        tie_break=program_arrival_order,
        ladder=ladder,
        beta=options.beta,
        attained=attrgetter("program_service_s"),
        waited=attrgetter("program_waiting_s"),
        # Most calls in queue 0 were never served. They count as served up to the last queue whose
        # cached calls pass them.
        first_queue_service_s=ladder.floor(int(min(levels, ladder.count))),
        margin=_MARGIN,
        cache_aware=True,
        reserve_factor=options.reserve_factor,
    )
