"""Plays of `weft bench fit --agreement` for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_bench.agreement.compare import Pair, Played


def played(program_s: float, **more: Any) -> Played:
    values = {"call_s": 1.0, "hit_rate": 0.5, "preemptions": 2, "moved_blocks": 0, **more}
    return Played(program_s, **values)


def pair(
    emulated: Sequence[float], virtual: Sequence[Sequence[float]], late_s: float = 0.0
) -> Pair:
    """Return the plays with these means of programs. late_s: of each emulated play of 10 s."""
    return Pair(
        [played(one, steps=100, busy_s=10.0, late_s=late_s) for one in emulated],
        [[played(one) for one in plays] for plays in virtual],
    )
