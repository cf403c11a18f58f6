"""Which tenants are active, and what each may claim."""

from __future__ import annotations

import pytest
from weft_engine import cache_shares
from weft_engine.cache_shares import CacheShares


def test_a_lone_tenant_may_claim_all_also_before_its_first_call():
    one = CacheShares(100)
    assert one.share("a", 0) == 1.0
    one.seen("a", 1.0, 0)
    assert one.share("a", 0) == 1.0


def test_active_tenants_share_by_weight():
    several = CacheShares(100)
    several.seen("a", 3.0, 0)
    several.seen("b", 1.0, 50)
    assert several.share("a", 60) == 0.75
    assert several.share("b", 60) == 0.25
    assert several.share("new", 60) == pytest.approx(0.2)


def test_a_tenant_is_idle_when_the_cache_was_reused_once_without_it():
    pinning: set[str] = set()
    several = CacheShares(100, pinning)
    several.seen("a", 2.0, 0)
    several.seen("b", 1.0, 90)
    assert several.weight("a", 100) == 2.0
    assert several.weight("a", 101) == 0.0
    assert several.share("b", 101) == 1.0
    pinning.add("a")
    assert several.weight("a", 101) == 2.0
    assert several.weight(None, 101) == several.weight("unknown", 101) == 0.0


def test_the_tenant_that_was_active_least_recently_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(cache_shares, "_KEPT_TENANTS", 2)
    several = CacheShares(100)
    for clock, name in enumerate("abac"):
        several.seen(name, 1.0, clock)
    assert several.weight("a", 3) == 1.0
    assert several.weight("b", 3) == 0.0
