"""Routers by name."""

from __future__ import annotations

import pytest
from weft_gateway.config import load
from weft_gateway.policies.route.registry import ROUTERS, build


def test_only_locality_and_soonest_use_homes():
    with_homes = {name for name in ROUTERS if build(name, 7).sticky_above_tokens == 7}
    without = {name for name in ROUTERS if build(name, 7).sticky_above_tokens is None}
    assert with_homes == {"locality", "soonest"}
    assert without == ROUTERS.keys() - with_homes


def test_unknown_name_fails_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"known: least_used, locality, .*round_robin, soonest, work"
    ):
        build("prefix_tree", 1)


def test_another_package_registers_a_balancer(tmp_path, monkeypatch):
    package = tmp_path / "first-0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: first\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[weft.balancers]\nfirst = first_replica:first\n")
    (tmp_path / "first_replica.py").write_text(
        "from weft_gateway.policies.route.router import Router\n"
        "def first(threshold_tokens, alpha):\n"
        "    return Router('first', {}, {}, lambda totals, ordinal, rng: min(totals))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert build("first", 2048).name == "first"
    assert load(balancer="first").balancer == "first"
