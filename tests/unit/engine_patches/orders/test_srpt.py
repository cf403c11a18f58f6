"""The clairvoyant limit."""

from __future__ import annotations

import math

import pytest
from weft_engine.orders import CallView
from weft_engine.orders.srpt import Srpt


def test_it_is_refused_outside_of_experiments():
    with pytest.raises(ValueError, match="experiments"):
        Srpt()


def test_the_program_with_the_least_left_is_first_and_the_untold_last():
    order = Srpt(experiments=True)
    assert order.rank(CallView(remaining_s=5.0, total_service_s=2.0)) == 3.0
    assert order.rank(CallView()) == math.inf


def test_a_negative_margin_is_refused():
    with pytest.raises(ValueError, match="margin_s"):
        Srpt(experiments=True, margin_s=-1.0)
