"""The program that each row of the table of names identifies."""

from __future__ import annotations

import pytest
from weft_gateway.model import ProgramKey
from weft_gateway.programs.aliases import BODY, HEADERS, Decides
from weft_gateway.programs.identity import place_of, resolve, tenant_of
from weft_gateway.programs.ids import IdentityError
from weft_gateway.programs.response_store import ResponseStore, StoredResponse


def identify(headers=None, body=None, path=None, chains=None, **options):
    pairs = (headers or {}).items()
    return resolve(
        tenant="t",
        headers=[(name.encode(), v if isinstance(v, bytes) else v.encode()) for name, v in pairs],
        body=body or {},
        path_program=path,
        chains=chains or ResponseStore(),
        **options,
    )


def nested(path, value):
    for key in reversed(path):
        value = {key: value}
    return value


SESSIONS = [row for row in HEADERS if row.decides is Decides.PROGRAM]
FIELDS = [row for row in BODY if row.decides is Decides.PROGRAM]
OTHERS = [row for row in (*HEADERS, *BODY) if row.decides is not Decides.PROGRAM]


def sent(row, value):
    """Return the arguments of `identify` for a call with this name."""
    if isinstance(row.where, bytes):
        return {"headers": {row.text: value}}
    return {"body": nested(row.where, value)}


@pytest.mark.parametrize("row", [*SESSIONS, *FIELDS], ids=lambda row: row.text)
def test_a_name_of_a_session_names_the_program(row):
    found = identify(**sent(row, "abc"))
    assert found.key == ProgramKey("t", "abc")
    assert (found.thread, found.source) == ("main", row.text)
    assert not found.ephemeral


@pytest.mark.parametrize("row", [one for one in SESSIONS if one.thread], ids=lambda row: row.text)
def test_companion_headers_name_thread_and_parent(row):
    headers = {row.text: "abc", row.thread.decode(): "th"}
    if row.parent:
        headers[row.parent.decode()] = "pa"
    found = identify(headers)
    assert found.thread == "th"
    assert found.parent == ("pa" if row.parent else "")


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.text)
@pytest.mark.parametrize("value", ["abc", "x" * 300])
def test_other_names_identify_nothing_and_are_never_refused(row, value):
    assert identify(**sent(row, value)).source == "none"


def test_the_first_name_for_placement_is_found():
    body = {"prompt_cache_key": "key", "user": "me"}
    assert place_of([(b"x-request-id", b"r")], body) == "key"
    assert place_of([(b"x-correlation-id", b"c"), (b"x-smg-routing-key", b"k")], body) == b"k"
    for wrong in ([], {}, 7, None, ""):
        assert place_of([], {"prompt_cache_key": wrong}) == ""


def test_earlier_rows_take_precedence():
    body = {"session_id": "body", "previous_response_id": "chain"}
    headers = {"x-session-id": "two", "x-weft-program": "one"}
    assert identify(headers, body, path="path").key.program == "path"
    assert identify(headers, body).key.program == "one"
    assert identify({"x-session-id": "two"}, body).key.program == "two"
    assert identify(None, body).key.program == "body"


def test_parent_of_a_claude_code_sub_agent_is_the_main_thread_by_default():
    session = {"x-claude-code-session-id": "s"}
    assert identify(session).parent == ""
    agent = identify(session | {"x-claude-code-agent-id": "a1"})
    assert (agent.key.program, agent.thread, agent.parent) == ("s", "a1", "main")
    nested = session | {"x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}
    assert identify(nested).parent == "a1"


def test_codex_sub_agent_is_a_thread_with_its_parent():
    root = identify({"session-id": "s", "thread-id": "s"})
    child = identify({"session-id": "s", "thread-id": "c", "x-codex-parent-thread-id": "s"})
    assert child.key == root.key
    assert (child.thread, child.parent) == ("c", root.thread)


def test_call_that_continues_an_answer_joins_its_thread():
    chains = ResponseStore()
    chains.record(ProgramKey("t", "root"), "resp_1", StoredResponse("root", "search"))
    found = identify(body={"previous_response_id": "resp_1"}, chains=chains)
    assert (found.key.program, found.thread) == ("root", "search")
    assert identify(body={"previous_response_id": "resp_2"}, chains=chains).thread == "main"


def test_path_program_uses_threads_of_weft_headers():
    found = identify({"x-weft-thread": "t1", "x-weft-parent": "t0"}, path="p")
    assert (found.thread, found.parent, found.source) == ("t1", "t0", "path")


def test_dynamos_final_header_is_read():
    headers = {"x-dynamo-session-id": "s", "x-dynamo-session-final": "true"}
    assert identify(headers).final
    assert not identify({"x-dynamo-session-id": "s", "x-dynamo-session-final": "0"}).final


def test_agentic_context_names_thread_and_parent():
    context = {"program_id": "p", "agent_id": "a", "parent_program_id": "q"}
    found = identify(body={"vllm_xargs": {"agentic_context": context}})
    assert (found.key.program, found.thread, found.parent) == ("p", "a", "q")


def test_call_without_identity_is_a_new_program():
    a, b = identify(), identify()
    assert a.key != b.key
    assert a.ephemeral
    assert b.ephemeral


def test_empty_metadata_names_no_program():
    assert identify(body={"metadata": None}).ephemeral


def test_empty_id_is_ignored():
    assert identify({"x-session-id": "", "x-conversation-id": "c"}).key.program == "c"
    assert identify(body={"session_id": ""}).ephemeral


def test_id_has_at_most_256_bytes():
    assert len(identify({"x-session-id": "x" * 256}).key.program) == 256
    for wrong in ({"headers": {"x-session-id": "x" * 257}}, {"body": {"session_id": "ü" * 129}}):
        with pytest.raises(IdentityError) as raised:
            identify(**wrong)
        assert raised.value.code == "id_too_long"
    with pytest.raises(IdentityError):
        identify(path="x" * 257)


@pytest.mark.parametrize("value", [True, ["a"], 1.5, {"id": "a"}])
def test_id_of_another_type_is_refused(value):
    with pytest.raises(IdentityError) as raised:
        identify(body={"session_id": value})
    assert raised.value.code == "bad_id"


def test_number_is_read_as_text():
    assert identify(body={"session_id": 17}).key.program == "17"


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", b"a\xffb", b"\xed\xa0\x80"])
@pytest.mark.parametrize("name", ["x-session-id", "x-parent-session-id"])
def test_invalid_utf8_is_refused(name, raw):
    with pytest.raises(IdentityError) as raised:
        identify({"x-session-id": "x"} | {name: raw})
    assert raised.value.code == "bad_id"


def test_id_names_one_program_in_header_and_body():
    name = "\\xff ÿ"
    assert identify({"x-session-id": name}).key == identify(body={"session_id": name}).key


def test_a_trace_names_no_program():
    assert identify({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}).ephemeral


def test_chain_of_answers_folds_to_its_root():
    chains = ResponseStore()
    chains.record(ProgramKey("t", "root"), "resp_1")
    found = identify(body={"previous_response_id": "resp_1"}, chains=chains)
    assert found.key.program == "root"
    chains.record(found.key, "resp_2")
    assert identify(body={"previous_response_id": "resp_2"}, chains=chains).key.program == "root"
    assert identify(body={"previous_response_id": "other"}, chains=chains).key.program == "other"


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_conversation_may_be_a_name_or_an_object(conversation):
    assert identify(body={"conversation": conversation}).key.program == "conv_1"


def test_conversation_without_an_id_names_no_program():
    assert identify(body={"conversation": {}}).ephemeral
    assert identify(body={"conversation": {"id": ""}}).ephemeral


@pytest.mark.parametrize(
    ("body", "chained", "ephemeral"),
    [
        ({"input": "hi"}, True, False),
        ({"input": "hi", "store": True}, True, False),
        ({"input": "hi", "store": False}, True, True),
        ({"input": "hi", "store": True}, False, False),
        ({"input": "hi"}, False, True),
        ({"messages": [], "store": True}, False, True),
    ],
)
def test_program_of_a_stored_answer_is_not_ephemeral(body, chained, ephemeral):
    assert identify(body=body, chained=chained).ephemeral is ephemeral


def test_chain_without_a_key_is_one_program():
    chains = ResponseStore()
    first = identify(body={"input": "hi"}, chains=chains, chained=True)
    chains.record(first.key, "resp_1")
    second = identify(
        body={"input": "more", "previous_response_id": "resp_1"}, chains=chains, chained=True
    )
    assert second.key == first.key
    assert not second.ephemeral


def test_tenants_are_digests_of_keys():
    assert tenant_of("") == "public"
    assert tenant_of("a") != tenant_of("b")
    assert len(tenant_of("a")) == 16
    assert "/" not in tenant_of("a/b")
