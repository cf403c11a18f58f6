"""First come, first served."""

from __future__ import annotations

from engine_patches.orders import CallView
from engine_patches.orders.fcfs import Fcfs


def test_whatever_a_program_has_used_its_calls_rank_alike():
    assert Fcfs().rank(CallView(1e9, 5.0)) == Fcfs().rank(CallView())
