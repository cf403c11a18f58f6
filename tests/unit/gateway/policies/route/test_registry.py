"""Routers by name."""

from __future__ import annotations

import pytest
from weft_gateway.model.options import Balancer
from weft_gateway.policies.route.registry import ROUTERS, build


def test_every_balancer_has_a_router():
    assert set(ROUTERS) == {balancer.value for balancer in Balancer}
    for balancer in Balancer:
        assert build(balancer, 2048).filters


def test_only_locality_and_soonest_use_homes():
    with_homes = {name for name in ROUTERS if build(name, 7).sticky_above_tokens == 7}
    without = {name for name in ROUTERS if build(name, 7).sticky_above_tokens is None}
    assert with_homes == {"locality", "soonest"}
    assert without == ROUTERS.keys() - with_homes


def test_unknown_name_fails_with_the_known_ones():
    with pytest.raises(
        ValueError, match="least_used, locality, power_of_two, round_robin, soonest, work"
    ):
        build("prefix_tree", 1)
