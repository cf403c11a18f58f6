"""Faults hit the configured share of calls, and the same calls for the same seed."""

from __future__ import annotations

import pytest
from weft_bench.simulated.faults import Fault, Faults


def met(seed: int, share: float, calls: int = 4000) -> list[bool]:
    faults = Faults()
    faults.set(Fault("cut", share, seed))
    return [faults.draw() is not None for _ in range(calls)]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_fault_hits_its_share(share):
    # Four standard deviations of 4,000 draws are at most 3.2%.
    assert sum(met(1, share)) / 4000 == pytest.approx(share, abs=0.032)


def test_same_seed_hits_the_same_calls():
    assert met(1, 0.2) == met(1, 0.2)
    assert met(1, 0.2) != met(2, 0.2)


def test_one_kind_does_not_affect_the_calls_of_another():
    alone, both = Faults(), Faults()
    for faults in (alone, both):
        faults.set(Fault("500", 0.3, 7))
    both.set(Fault("slow", 0.5, 7))
    drawn = [(alone.draw(), both.draw()) for _ in range(300)]
    assert all(one == other for one, other in drawn if one is not None)
    assert any(other.kind == "slow" for one, other in drawn if one is None and other is not None)


def test_call_can_name_its_fault():
    faults = Faults()
    faults.set(Fault("slow", 0.0, delay_s=3.0))
    assert faults.draw() is None
    assert faults.draw("cut").kind == "cut"
    assert faults.met["cut"] == 1
    with pytest.raises(ValueError, match="kind must be one of"):
        faults.draw("flood")
    faults.set(Fault("hang"))
    faults.clear()
    assert faults.draw() is None


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ([], "an object"),
        ({"share": 1}, "a kind"),
        ({"kind": "flood"}, "kind"),
        ({"kind": "cut", "share": 2}, "share"),
        ({"kind": "cut", "share": float("nan")}, "share"),
        ({"kind": "cut", "share": "all"}, "share"),
        ({"kind": "cut", "seed": 0.5}, "seed"),
        ({"kind": "slow", "delay_s": -1}, "delay_s"),
        ({"kind": "slow", "speed": 1}, "unknown: speed"),
    ],
    ids=str,
)
def test_invalid_fault_is_refused_with_the_name_of_the_field(raw, named):
    with pytest.raises(ValueError, match=named):
        Fault.from_mapping(raw)
    assert Fault.from_mapping({"kind": "cut", "share": 0.5, "seed": 3}) == Fault("cut", 0.5, 3)
