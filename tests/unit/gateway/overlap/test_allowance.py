"""What one stream may keep."""

from weft_gateway.overlap.allowance import Allowance


def test_no_more_can_be_taken_than_is_left():
    allowance = Allowance(10)
    assert allowance.take(7)
    assert not allowance.take(4)
    assert allowance.take(3), "a refusal takes nothing"
    allowance.give_back(10)
    assert allowance.take(10)
