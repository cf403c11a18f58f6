"""Chains of answers fold to the program that began them."""

from __future__ import annotations

import pytest
from weft_gateway.model import ProgramKey
from weft_gateway.programs.response_store import ResponseStore


def test_a_link_leads_to_its_program_and_an_unknown_one_to_itself():
    chains = ResponseStore()
    chains.record(ProgramKey("t", "root"), "resp_1")
    assert chains.root("t", "resp_1") == "root"
    assert chains.root("t", "resp_2") == "resp_2"


def test_a_tenant_cannot_follow_anothers_chain():
    chains = ResponseStore()
    chains.record(ProgramKey("someone-else", "root"), "resp_1")
    assert chains.root("t", "resp_1") == "resp_1"


def test_the_links_used_longest_ago_are_forgotten_first():
    chains = ResponseStore(limit=2)
    chains.record(ProgramKey("t", "p"), "a")
    chains.record(ProgramKey("t", "p"), "b")
    assert chains.root("t", "a") == "p"
    chains.record(ProgramKey("t", "p"), "c")
    assert [chains.root("t", link) for link in "abc"] == ["p", "b", "p"]


def test_one_tenants_answers_push_out_his_own_and_not_anothers():
    chains = ResponseStore(limit=4)
    for link in "ab":
        chains.record(ProgramKey("quiet", "p"), link)
    for number in range(30):
        chains.record(ProgramKey("loud", "p"), f"r{number}")
    assert [chains.root("quiet", link) for link in "ab"] == ["p", "p"]
    known = [n for n in range(30) if chains.root("loud", f"r{n}") == "p"]
    assert known == [28, 29]


def test_what_was_stored_long_ago_is_forgotten():
    now = [100.0]
    chains = ResponseStore(keep_s=10.0, clock=lambda: now[0])
    chains.record(ProgramKey("t", "p"), "a")
    now[0] = 110.0
    assert chains.root("t", "a") == "p"
    now[0] = 111.0
    assert chains.root("t", "a") == "a"


@pytest.mark.anyio
async def test_an_answer_has_a_program_and_a_replica_until_it_is_forgotten():
    chains = ResponseStore()
    await chains.remember(ProgramKey("t", "p"), "a", "r1")
    found = await chains.find("t", "a")
    assert (found.program, found.replica) == ("p", "r1")
    assert await chains.find("other", "a") is None
    await chains.forget("t", "a")
    assert await chains.find("t", "a") is None


@pytest.mark.anyio
async def test_an_answers_id_belongs_to_the_tenant_that_had_it_first():
    now = [100.0]
    chains = ResponseStore(limit=4, keep_s=10.0, clock=lambda: now[0])
    mine, theirs = ProgramKey("mine", "p"), ProgramKey("theirs", "q")
    assert chains.record(mine, "resp_1", "r0") is not None
    assert chains.record(theirs, "resp_1", "r1") is None
    assert await chains.find("theirs", "resp_1") is None
    assert (await chains.find("mine", "resp_1")).replica == "r0"
    # Its own tenant may have it again; another one when it is gone or forgotten.
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


def test_a_session_has_a_name_of_its_own_for_each_tenant():
    chains = ResponseStore()
    for tenant in ("mine", "theirs"):
        assert chains.record(ProgramKey(tenant, tenant), "\x01session:run") is not None
    assert chains.root("mine", "\x01session:run") == "mine"
