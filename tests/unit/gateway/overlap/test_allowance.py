"""The memory allowance of one stream."""

from weft_gateway.overlap.allowance import Allowance


def test_allowance_is_limited():
    allowance = Allowance(10)
    assert allowance.take(7)
    assert not allowance.take(4)
    assert allowance.take(3), "a refusal takes nothing"
    allowance.give_back(10)
    assert allowance.take(10)
