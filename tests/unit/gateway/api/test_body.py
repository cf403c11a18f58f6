"""Parsing and errors of JSON bodies."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest
from weft_gateway.api.body import call_body, check_depth, is_skimmed, json_object, raw_members
from weft_gateway.calls.turns import Turns
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.engine.engine_request import ReplicaKind, build_engine_request
from weft_gateway.errors import ApiError

DEEP = b"[" * 300 + b"]" * 300


def test_object_is_returned_with_its_bytes() -> None:
    assert json_object(b' {"a": 1}') == (b' {"a": 1}', {"a": 1})


def test_byte_order_mark_is_removed() -> None:
    assert json_object(b'\xef\xbb\xbf{"a": 1}') == (b'{"a": 1}', {"a": 1})


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"\xef\xbb\xbf", "invalid_json"),
        ('{"a": 1}'.encode("utf-16"), "invalid_json"),
        (b'{"a": "\\ud800"}', "invalid_json"),
        (b"7", "invalid_body"),
        (b"[" * 5000, "too_deeply_nested"),
        (b'{"depth": }', "invalid_json"),
    ],
)
def test_each_invalid_body_has_its_error_code(raw: bytes, code: str) -> None:
    with pytest.raises(ApiError) as raised:
        json_object(raw)
    assert (raised.value.status, raised.value.code) == (400, code)


def test_parsed_body_can_be_serialized_unless_too_deep() -> None:
    check_depth(json.loads('{"a": [1, 1.5, null, true, "\u00e9", {}]}'))
    with pytest.raises(ApiError) as raised:
        check_depth(json.loads(DEEP))
    assert raised.value.code == "too_deeply_nested"


# Bodies of calls.

MOST = 4 << 20
TINY = b'{"role":"user","content":"hi"}'


def read(raw: bytes, most: int, items: int = 2048) -> tuple[bytes, Any]:
    return asyncio.run(call_body(raw, most, items, Turns(), "tenant"))[:2]


def chat(messages: bytes, **more: object) -> bytes:
    rest = json.dumps({"model": "tiny", **more}).encode()
    return rest[:-1] + b', "messages": [' + messages + b"]}"


def code_of(raw: bytes) -> str:
    with pytest.raises(ApiError) as raised:
        read(raw, MOST)
    assert raised.value.status == 400
    return raised.value.code


def test_long_conversation_is_parsed() -> None:
    # As dense as source code.
    text = 'say("some words, of a long conversation")\n    and = then[code] + more\n' * 25
    message = json.dumps({"role": "user", "content": text}).encode()
    raw = chat(b",".join([message] * 1500))
    assert 2_500_000 < len(raw) < MOST
    got, body = read(raw, MOST)
    assert got is raw
    assert body == json.loads(raw)
    assert not is_skimmed(body)


@pytest.mark.parametrize(
    "messages",
    [
        b",".join([TINY] * 3000),
        b",".join([TINY] * 700_000),
        b'{"role":"user","content":[' + b",".join([b'{"type":"text","text":"x"}'] * 3000) + b"]}",
        b'{"role":"user","content":[{"type":"tool_result","content":['
        + b",".join([b'{"type":"text","text":"x"}'] * 3000)
        + b"]}]}",
        b'{"role":"assistant","tool_calls":[' + b",".join([b"{}"] * 3000) + b"]}",
        b'{"role":"assistant","tool_calls":[{"function":{"arguments":"%b"}}]}' % (b"1" * 1_600_000),
        b'{"role":"user","content":"%b"}' % (b"x" * 5_000_000),
        b",".join([b"[[],[],[]]"] * 100_000),
        b'{"role":"user","content":"x","other":[' + b",".join([b"[]"] * 100_000) + b"]}",
    ],
    ids=["many", "24 MB", "parts", "results", "calls", "arguments", "long", "lists", "values"],
)  # fmt: skip
def test_expensive_content_is_not_parsed(messages: bytes) -> None:
    raw = chat(messages, stream=True, session_id="run-1", weft={"priority": 1})
    got, body = read(raw, MOST)
    assert got is raw
    assert is_skimmed(body)
    # The members that the gateway uses are parsed.
    assert (body["model"], body["stream"], body["session_id"]) == ("tiny", True, "run-1")
    assert body["weft"] == {"priority": 1}
    # A body that the gateway changes, here because of session_id, is written without loss.
    endpoint = BY_PATH["/v1/chat/completions"]
    pieces, _ = build_engine_request(raw, body, endpoint, ReplicaKind.VLLM, None, "")
    sent = json.loads(raw)
    del sent["session_id"], sent["weft"]
    assert json.loads(b"".join(pieces)) == sent
    # The parsed body holds no copy of the content.
    assert len(orjson.dumps(body)) < 200


def test_the_number_of_parsed_messages_and_parts_is_a_parameter() -> None:
    parts = b'{"role":"user","content":[' + b",".join([b'{"text":"x"}'] * 999) + b"]}"
    raw = chat(parts)
    assert not is_skimmed(read(raw, MOST, 1000)[1])
    assert is_skimmed(read(raw, MOST, 999)[1])


@pytest.mark.parametrize("member", ["input", "prompt"])
def test_large_lists_of_token_ids_are_not_parsed(member: str) -> None:
    raw = b'{"model": "tiny", "%b": [%b1]}' % (member.encode(), b"1," * 200_000)
    assert is_skimmed(read(raw, MOST)[1])


def test_images_do_not_count_as_text() -> None:
    url = "data:image/png;base64," + "A" * 1_500_000
    part = {"type": "image_url", "image_url": {"url": url}}
    raw = json.dumps({"messages": [{"role": "user", "content": [part, part]}]}).encode()
    assert not is_skimmed(read(raw, MOST)[1])
    assert is_skimmed(read(raw, 1 << 20)[1])


def test_errors_in_large_bodies_have_the_same_codes() -> None:
    many = b",".join([TINY] * 10_000)
    assert code_of(b"[" + many + b"]") == "invalid_body"
    assert code_of(chat(many)[:-2]) == "invalid_json"
    assert code_of(chat(many) + b"x") == "invalid_json"
    assert code_of(chat(many + b"," + b"[" * 3000 + b"]" * 3000)) == "too_deeply_nested"
    members = b",".join([b'"m%d": 1' % number for number in range(200_000)])
    assert code_of(b"{" + members + b"}") == "too_complex"


def test_byte_order_mark_of_a_large_body_is_removed() -> None:
    raw = chat(b",".join([TINY] * 10_000))
    assert read(b"\xef\xbb\xbf" + raw, MOST)[0] == raw


def test_raw_members_are_unchanged():
    members = raw_members(b'\xef\xbb\xbf{"input": [ 1, {} ], "a": null}')
    assert {name: bytes(value) for name, value in members.items()} == {
        "input": b"[ 1, {} ]",
        "a": b"null",
    }


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"[]", "invalid_body"),
        (b'{"input": [1,,2]}', "invalid_json"),
        (b'{"input": %b' % (b"[" * 100_000), "too_deeply_nested"),
        (b'{"x": [%b{}]}' % (b"{}," * 500_000), "too_complex"),
        (b'{%b"a": 1}' % b"".join(b'"%d": 1,' % n for n in range(1024)), "too_complex"),
    ],
)
def test_raw_members_are_bounded(raw, code):
    with pytest.raises(ApiError) as raised:
        raw_members(raw)
    assert raised.value.code == code


@pytest.mark.parametrize("messages", [TINY, b",".join([TINY] * 3000)], ids=["small", "large"])
@pytest.mark.parametrize(
    ("twice", "name"),
    [
        (b'"previous_response_id": "resp_1", "previous_response_id": "resp_2"', "previous_resp"),
        (b'"mod\\u0065l": "tiny"', "model"),
        (b'"messages": []', "messages"),
    ],
)
def test_duplicate_member_is_refused(messages: bytes, twice: bytes, name: str) -> None:
    raw = chat(messages)[:-1] + b", " + twice + b"}"
    with pytest.raises(ApiError) as raised:
        read(raw, MOST)
    assert (raised.value.status, raised.value.code) == (400, "duplicate_member")
    assert name in str(raised.value.param)
    with pytest.raises(ApiError) as raised:
        raw_members(raw)
    assert raised.value.code == "duplicate_member"


def test_nested_member_with_the_same_name_is_no_duplicate() -> None:
    raw = chat(TINY, metadata={"model": "x"}, tools=[{"model": {"model": 1}}])
    assert read(raw, MOST)[1] == json.loads(raw)
