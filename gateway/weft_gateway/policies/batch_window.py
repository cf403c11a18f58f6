"""How many calls of batches may be in flight at a replica. Pure.

A batch uses what other calls leave. While no other call runs, a quarter more calls than slots are
in flight, so that a free slot is taken in the next step. While others run, a part of the slots
stays free for the next of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from weft_run.plan.windows import AHEAD

# The share of an engine's slots that a batch leaves free beside other calls. An engine that reports
# its slots serves other calls before those of a batch.
_FREE: Final = 0.25
# Chats come in bursts, so engines with few slots leave this many free, but at most half of them.
_BURST: Final = 4
# The share of the default calls that batches and other calls use together on other engines, which
# serve calls in their order of arrival.
_TOGETHER: Final = 0.5
# Other calls are expected for this long after the last one, seconds.
EXPECTED_S: Final = 10.0
# The part of the mean time between the calls of a full window that passes at least between two, and
# the most of it, seconds: some steps of an engine.
_APART: Final = 0.5
_MOST_APART_S: Final = 0.1


def credit(slots: int, default: int, others: int, since_others_s: float) -> int:
    """Return the number of calls of batches that may be in flight at a replica, at least one, so
    that a batch progresses beside any load.

    slots: of the replica, 0 if unknown; default: calls for such a replica, assumed to be fewer than
    its slots. others: other calls in flight there. since_others_s: seconds since one of them began.
    """
    if not is_shared(others, since_others_s):
        return math.ceil(AHEAD * slots) if slots else default
    if slots:
        free = max(math.ceil(_FREE * slots), min(_BURST, slots // 2), others)
        return max(1, slots - free)
    return max(1, int(_TOGETHER * default) - others)


def is_shared(others: int, since_others_s: float) -> bool:
    """Whether other calls use a replica, or are expected there. Arguments: see `credit`."""
    return others > 0 or since_others_s <= EXPECTED_S


def apart_s(took_s: float, calls: int) -> float:
    """Return the seconds that pass between the begins of two calls of a batch.

    Calls that begin together end together, and then all of the next prompts are in one step, for
    which every other call waits. In between, the weights that a step reads hide a prompt. took_s:
    from the begin of a call to its end. calls: in flight, see `credit`.
    """
    return min(_MOST_APART_S, _APART * took_s / calls)


def by_use(used: Mapping[str, int], credits: Mapping[str, int]) -> list[str]:
    """Return the replicas that have credit left, the least used first. used: calls of batches in
    flight. credits: see `credit`.
    """
    share = {name: used.get(name, 0) / most for name, most in credits.items()}
    return sorted((name for name in credits if share[name] < 1), key=lambda name: share[name])
