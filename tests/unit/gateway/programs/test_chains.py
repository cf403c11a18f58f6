"""Chains of answers fold to the program that began them."""

from __future__ import annotations

import pytest

from gateway.model import ProgramKey
from gateway.programs.chains import ChainRoots


def test_a_link_leads_to_its_program_and_an_unknown_one_to_itself():
    chains = ChainRoots()
    chains.record(ProgramKey("t", "root"), "resp_1")
    assert chains.root("t", "resp_1") == "root"
    assert chains.root("t", "resp_2") == "resp_2"


def test_a_tenant_cannot_follow_anothers_chain():
    chains = ChainRoots()
    chains.record(ProgramKey("someone-else", "root"), "resp_1")
    assert chains.root("t", "resp_1") == "resp_1"


def test_the_links_used_longest_ago_are_forgotten_first():
    chains = ChainRoots(limit=2)
    chains.record(ProgramKey("t", "p"), "a")
    chains.record(ProgramKey("t", "p"), "b")
    assert chains.root("t", "a") == "p"
    chains.record(ProgramKey("t", "p"), "c")
    assert [chains.root("t", link) for link in "abc"] == ["p", "b", "p"]


def test_one_tenants_answers_push_out_his_own_and_not_anothers():
    chains = ChainRoots(limit=4)
    for link in "ab":
        chains.record(ProgramKey("quiet", "p"), link)
    for number in range(30):
        chains.record(ProgramKey("loud", "p"), f"r{number}")
    assert [chains.root("quiet", link) for link in "ab"] == ["p", "p"]
    known = [n for n in range(30) if chains.root("loud", f"r{n}") == "p"]
    assert known == [28, 29]


def test_what_was_stored_long_ago_is_forgotten():
    now = [100.0]
    chains = ChainRoots(keep_s=10.0, clock=lambda: now[0])
    chains.record(ProgramKey("t", "p"), "a")
    now[0] = 110.0
    assert chains.root("t", "a") == "p"
    now[0] = 111.0
    assert chains.root("t", "a") == "a"


@pytest.mark.anyio
async def test_an_answer_has_a_program_and_a_replica_until_it_is_forgotten():
    chains = ChainRoots()
    await chains.remember(ProgramKey("t", "p"), "a", "r1")
    found = await chains.find("t", "a")
    assert (found.program, found.replica) == ("p", "r1")
    assert await chains.find("other", "a") is None
    await chains.forget("t", "a")
    assert await chains.find("t", "a") is None
