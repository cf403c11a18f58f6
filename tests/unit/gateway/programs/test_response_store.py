"""Chains of answers fold to the program that began them."""

from __future__ import annotations

import pytest
from weft_gateway.model import ProgramKey
from weft_gateway.programs.response_store import ResponseStore


def test_link_leads_to_its_program_and_an_unknown_id_to_itself():
    chains = ResponseStore()
    chains.record(ProgramKey("t", "root"), "resp_1")
    assert chains.root("t", "resp_1") == "root"
    assert chains.root("t", "resp_2") == "resp_2"


def test_tenant_cannot_follow_another_tenants_chain():
    chains = ResponseStore()
    chains.record(ProgramKey("someone-else", "root"), "resp_1")
    assert chains.root("t", "resp_1") == "resp_1"


def test_least_recently_used_links_are_evicted_first():
    chains = ResponseStore(limit=2)
    chains.record(ProgramKey("t", "p"), "a")
    chains.record(ProgramKey("t", "p"), "b")
    assert chains.root("t", "a") == "p"
    chains.record(ProgramKey("t", "p"), "c")
    assert [chains.root("t", link) for link in "abc"] == ["p", "b", "p"]


def test_tenant_evicts_only_its_own_answers():
    chains = ResponseStore(limit=4)
    for link in "ab":
        chains.record(ProgramKey("quiet", "p"), link)
    for number in range(30):
        chains.record(ProgramKey("loud", "p"), f"r{number}")
    assert [chains.root("quiet", link) for link in "ab"] == ["p", "p"]
    known = [n for n in range(30) if chains.root("loud", f"r{n}") == "p"]
    assert known == [28, 29]


def test_old_answers_expire():
    now = [100.0]
    chains = ResponseStore(keep_s=10.0, clock=lambda: now[0])
    chains.record(ProgramKey("t", "p"), "a")
    now[0] = 110.0
    assert chains.root("t", "a") == "p"
    now[0] = 111.0
    assert chains.root("t", "a") == "a"


@pytest.mark.anyio
async def test_answer_has_a_program_and_a_replica_until_it_is_forgotten():
    chains = ResponseStore()
    await chains.remember(ProgramKey("t", "p"), "a", "r1")
    found = await chains.find("t", "a")
    assert (found.program, found.replica) == ("p", "r1")
    assert await chains.find("other", "a") is None
    await chains.forget("t", "a")
    assert await chains.find("t", "a") is None


@pytest.mark.anyio
async def test_response_id_belongs_to_its_first_tenant():
    now = [100.0]
    chains = ResponseStore(limit=4, keep_s=10.0, clock=lambda: now[0])
    mine, theirs = ProgramKey("mine", "p"), ProgramKey("theirs", "q")
    assert chains.record(mine, "resp_1", "r0") is not None
    assert chains.record(theirs, "resp_1", "r1") is None
    assert await chains.find("theirs", "resp_1") is None
    assert (await chains.find("mine", "resp_1")).replica == "r0"
    # The tenant may reuse the id. Another tenant may use it after it is removed or forgotten.
    assert chains.record(mine, "resp_1", "r2") is not None
    await chains.forget("mine", "resp_1")
    assert chains.record(theirs, "resp_1", "r1") is not None
    now[0] = 111.0
    assert chains.record(mine, "resp_1", "r0") is not None
    assert await chains.find("theirs", "resp_1") is None
    for number in range(2, 7):
        chains.record(mine, f"resp_{number}", "r0")
    assert chains.record(theirs, "resp_1", "r1") is not None
    assert len(chains._owners) == len(chains._answers) == 4


def test_session_names_are_separate_by_tenant():
    chains = ResponseStore()
    for tenant in ("mine", "theirs"):
        assert chains.record(ProgramKey(tenant, tenant), "\x01session:run") is not None
    assert chains.root("mine", "\x01session:run") == "mine"
