"""The oldest program first."""

from __future__ import annotations

from weft_engine.orders import CallView
from weft_engine.orders.program_fifo import ProgramFifo


def test_calls_rank_by_the_arrival_of_their_program():
    early, late = CallView(program_arrival_s=10.0), CallView(program_arrival_s=11.0)
    assert ProgramFifo().rank(early) < ProgramFifo().rank(late)
