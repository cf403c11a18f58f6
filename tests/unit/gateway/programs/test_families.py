"""Sub-agents with separate sessions."""

from __future__ import annotations

import pytest
from weft_gateway.model import ProgramKey
from weft_gateway.programs.families import fold, has_parent
from weft_gateway.programs.identity import Identity, resolve
from weft_gateway.programs.response_store import ResponseStore

pytestmark = pytest.mark.anyio


def call(name: str, parent: str = "", **headers: str) -> Identity:
    named = {"x-session-id": name, "x-parent-session-id": parent} | headers
    raw = [(key.encode(), value.encode()) for key, value in named.items() if value]
    return resolve(tenant="t", headers=raw, body={}, path_program=None, chains=ResponseStore())


@pytest.mark.parametrize(
    ("headers", "folds"),
    [
        ({"x-session-id": "a", "x-parent-session-id": "b"}, True),
        ({"x-dynamo-session-id": "a", "x-dynamo-parent-session-id": "b"}, True),
        ({"x-session-id": "a"}, False),
        ({"x-session-id": "a", "x-parent-session-id": "a"}, False),
        # Their parents are threads of the same program.
        ({"x-weft-program": "a", "x-weft-thread": "t", "x-weft-parent": "b"}, False),
        ({"x-claude-code-session-id": "a", "x-claude-code-parent-agent-id": "b"}, False),
    ],
)
def test_only_a_session_as_parent_folds(headers, folds):
    raw = [(key.encode(), value.encode()) for key, value in headers.items()]
    identity = resolve(tenant="t", headers=raw, body={}, path_program=None, chains=ResponseStore())
    assert has_parent(identity) is folds


async def test_sub_agent_is_a_thread_of_its_parents_program():
    found = await fold(ResponseStore(), call("child", "root"))
    assert (found.key, found.thread, found.parent) == (ProgramKey("t", "root"), "child", "main")


async def test_nested_sub_agent_is_a_thread_of_the_root():
    chains = ResponseStore()
    await fold(chains, call("child", "root"))
    for _ in range(2):
        found = await fold(chains, call("grandchild", "child"))
        assert (found.key.program, found.thread, found.parent) == ("root", "grandchild", "child")
    found = await fold(chains, call("third", "grandchild"))
    assert (found.key.program, found.parent) == ("root", "grandchild")


async def test_cyclic_parents_end():
    chains = ResponseStore()
    assert (await fold(chains, call("a", "b"))).key.program == "b"
    assert (await fold(chains, call("b", "a"))).key.program == "b"


async def test_final_call_of_a_sub_agent_does_not_end_the_program():
    headers = {"x-dynamo-session-id": "a", "x-dynamo-parent-session-id": "b",
               "x-dynamo-session-final": "1"}  # fmt: skip
    raw = [(key.encode(), value.encode()) for key, value in headers.items()]
    identity = resolve(tenant="t", headers=raw, body={}, path_program=None, chains=ResponseStore())
    assert identity.final
    assert not (await fold(ResponseStore(), identity)).final


async def test_session_and_answer_with_one_name_are_separate():
    chains = ResponseStore()
    chains.record(ProgramKey("t", "someone"), "root")
    assert (await fold(chains, call("child", "root"))).key.program == "root"
