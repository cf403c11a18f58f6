"""Prompt tokens that tenants may have computed in a step of an engine whose cost is known."""

from __future__ import annotations

from typing import Any

import pytest
from weft_engine.prefill_limits import PrefillLimits, PrefillPacing, Step
from weft_engine.tenant_shares import TenantShares

BLOCK, BUDGET = 16, 2048
# A step takes as long as 64 prompt tokens.
BASE_S, TOKEN_S = 0.0064, 1e-4


def running(**tenants: float) -> TenantShares:
    """One sequence of each tenant runs, with this weight."""
    shares = TenantShares()
    for name, weight in tenants.items():
        shares.arrive(f"{name}0", name, weight)
        shares.start(f"{name}0")
    return shares


def learned(shares: TenantShares) -> TenantShares:
    shares.cost.note(BASE_S, 0)
    shares.cost.note(BASE_S + 2000 * TOKEN_S, 2000)
    return shares


def limits(shares: TenantShares, prefilling: dict[str, int], **changes: Any) -> PrefillLimits:
    decoding = len(shares._begun) - len(prefilling)
    step = Step(prefilling, decoding, 1, BUDGET, BUDGET, 100_000)._replace(**changes)
    found = PrefillPacing(shares, BLOCK).limits(step)
    assert found is not None
    return found


def test_a_lone_tenant_has_no_limits():
    shares = learned(running(a=1.0))
    step = Step({"a0": 5000}, 0, 1, BUDGET, BUDGET, 100_000)
    assert PrefillPacing(shares, BLOCK).limits(step) is None


def test_a_prompt_adds_no_more_to_a_step_than_the_step_of_a_rival_that_decodes_takes():
    found = limits(learned(running(a=1.0, b=1.0)), {"a0": 5000})
    assert found.left("a0", True, 5000) == pytest.approx(64, abs=1)
    found.take("a0", True, 64, 5000)
    assert found.left("a0", True, 5000) == 0


@pytest.mark.parametrize(("a", "b", "expected"), [(3.0, 1.0, 192), (1.0, 2.0, 32)])
def test_weights_are_shares_of_the_step(a, b, expected):
    found = limits(learned(running(a=a, b=b)), {"a0": 5000})
    assert found.left("a0", True, 5000) == pytest.approx(expected, abs=1)


def test_the_rival_that_needs_the_least_of_the_step_limits_a_tenant():
    found = limits(learned(running(a=1.0, b=1.0, c=1.0)), {"a0": 5000, "c0": 300})
    assert found.left("a0", True, 5000) == pytest.approx(64, abs=1)
    found = limits(learned(running(a=1.0, c=1.0)), {"a0": 5000, "c0": 300})
    assert found.left("a0", True, 5000) == pytest.approx(364, abs=1)


def test_tenants_with_long_prompts_divide_the_budget_by_weights():
    found = limits(learned(running(a=3.0, b=1.0)), {"a0": 5000, "b0": 5000}, slots=0)
    assert found.left("a0", True, 5000) == BUDGET * 3 // 4
    assert found.left("b0", True, 5000) == BUDGET // 4


def test_each_tenant_has_a_block_at_least_and_one_for_a_call_that_is_admitted():
    shares = learned(running(a=1.0, b=1000.0))
    assert limits(shares, {"a0": 5000}).left("a0", True, 5000) == BLOCK
    shares.arrive("a1", "a", 1.0)
    found = limits(shares, {"a0": 5000})
    assert found.left("a0", True, 5000) == BLOCK
    found.take("a0", True, BLOCK, 5000)
    assert found.left("a1", False, 500) == BLOCK


def test_a_call_is_admitted_only_if_blocks_suffice_for_the_prompts_of_its_tenant_in_flight():
    shares = learned(running(a=1.0, b=1.0))
    for name, tenant in (("a1", "a"), ("b1", "b")):
        shares.arrive(name, tenant, 1.0)
    found = limits(shares, {"a0": 5000}, free=5400)
    assert found.left("a1", False, 300) > 0
    found.take("a1", False, BLOCK, 300)
    assert found.left("a1", False, 300) == 0
    assert found.left("b1", False, 300) > 0


def test_a_tenant_that_left_a_moment_ago_is_protected_still():
    shares = learned(running(a=1.0, b=1.0))
    shares.leave("b0")
    assert limits(shares, {"a0": 5000}).left("a0", True, 5000) == pytest.approx(64, abs=1)
    shares.advance(1.01 * (BASE_S + BUDGET * TOKEN_S))
    step = Step({"a0": 5000}, 0, 1, BUDGET, BUDGET, 100_000)
    assert PrefillPacing(shares, BLOCK).limits(step) is None


def test_a_tenant_that_is_admitted_next_is_protected_already():
    shares = learned(running(a=1.0))
    shares.arrive("b0", "b", 1.0)
    assert limits(shares, {"a0": 5000}).left("a0", True, 5000) == pytest.approx(64, abs=1)
    found = limits(shares, {"a0": 5000}, slots=0)
    assert found.left("a0", True, 5000) == BUDGET


def test_a_step_in_sixteen_computes_no_prompt():
    pacing, shares = PrefillPacing(learned(running(a=1.0, b=1.0)), BLOCK), []
    for _ in range(64):
        found = pacing.limits(Step({"a0": 5000}, 1, 1, BUDGET, BUDGET, 100_000))
        assert found is not None
        shares.append(found.left("a0", True, 5000))
    assert shares.count(0) == 4


def test_calls_that_decode_are_protected_before_a_step_was_measured():
    shares = running(a=1.0, b=1.0)
    shares.cost.note(0.2, 2000)
    assert limits(shares, {"a0": 5000}).left("a0", True, 5000) == BLOCK
    found = limits(shares, {"a0": 5000, "b0": 5000}, decoding=0, slots=0)
    assert found.left("a0", True, 5000) == BUDGET // 2
