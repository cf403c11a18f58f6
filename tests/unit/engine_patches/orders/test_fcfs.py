"""First come, first served."""

from __future__ import annotations

from weft_engine.orders import CallView
from weft_engine.orders.fcfs import Fcfs


def test_whatever_a_program_has_used_its_calls_rank_alike():
    assert Fcfs().rank(CallView(1e9, 5.0)) == Fcfs().rank(CallView())
