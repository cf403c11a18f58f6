"""Messages of a Responses WebSocket, as bodies of `POST /v1/responses`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from weft_gateway.api.websocket_turns import Turn, Turns
from weft_gateway.errors import ApiError

LIMIT = 1 << 16


def create(**members: Any) -> str:
    return json.dumps({"type": "response.create", "model": "m"} | members)


def read(turns: Turns, **members: Any) -> tuple[Turn, dict[str, Any]]:
    turn = turns.read(create(**members))
    assert turn is not None
    return turn, json.loads(turn.body)


def completed(response_id: str, *output: Any) -> bytes:
    response = {"id": response_id, "output": list(output)}
    return json.dumps({"type": "response.completed", "response": response}).encode()


def item(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def test_turn_becomes_a_streamed_call_with_the_members_of_its_message():
    _, body = read(Turns(LIMIT), input="Hello", store=False, background=True, temperature=0)
    expected = {"model": "m", "input": "Hello", "store": False, "temperature": 0, "stream": True}
    assert body == expected


def test_turn_after_the_last_response_sends_the_kept_items():
    turns = Turns(LIMIT)
    first, _ = read(turns, input="Hello")
    turns.answered(first, completed("resp_1", item("Hi.", "assistant")))
    second, body = read(turns, previous_response_id="resp_1", input=[item("Go on")])
    assert body["input"] == [item("Hello"), item("Hi.", "assistant"), item("Go on")]
    assert body["previous_response_id"] is None
    turns.answered(second, completed("resp_2", item("On.", "assistant")))
    _, body = read(turns, previous_response_id="resp_2", input="More")
    assert [each["content"] for each in body["input"]] == ["Hello", "Hi.", "Go on", "On.", "More"]


def test_turn_after_another_response_is_continued_by_the_engine():
    turns = Turns(LIMIT)
    first, body = read(turns, previous_response_id="resp_stored", input="Hello")
    assert (body["previous_response_id"], body["input"]) == ("resp_stored", "Hello")
    turns.answered(first, completed("resp_1", item("Hi.", "assistant")))
    _, body = read(turns, previous_response_id="resp_1", input="Go on")
    assert body["previous_response_id"] == "resp_stored"
    assert [each["content"] for each in body["input"]] == ["Hello", "Hi.", "Go on"]


def test_turn_without_generation_prepares_the_next_turn():
    turns = Turns(LIMIT)
    first, body = read(turns, input=[item("Hello")], generate=False)
    assert not first.generate
    assert "generate" not in body
    created, done = (json.loads(event) for event in turns.prepared(first, 7.0))
    assert (created["type"], done["type"]) == ("response.created", "response.completed")
    assert done["response"]["status"] == "completed"
    second, body = read(turns, previous_response_id=done["response"]["id"], input=[item("Go")])
    assert second.generate
    assert body["input"] == [item("Hello"), item("Go")]


def test_items_of_a_message_pass_unchanged():
    """Items are not parsed. Parsing millions of tiny items would take seconds."""
    text = '{"type": "response.create", "model": "m", "input": [ {"a" : 1e2}, {} ] }'
    turn = Turns(LIMIT).read(text)
    assert turn is not None
    assert b'[ {"a" : 1e2}, {} ]' in turn.body
    assert turn.items == b'{"a" : 1e2}, {}'


def test_forgotten_items_are_not_continued():
    turns = Turns(LIMIT)
    first, _ = read(turns, input=[item("Hello")])
    turns.answered(first, completed("resp_1"))
    assert turns.kept_bytes == len(first.items)
    turns.forget()
    assert turns.kept_bytes == 0
    _, body = read(turns, previous_response_id="resp_1", input="Go on")
    assert body["previous_response_id"] == "resp_1", "left to the engine"


def test_processed_message_starts_no_turn():
    assert Turns(LIMIT).read('{"type": "response.processed", "response_id": "resp_1"}') is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_json"),
        ("[1]", "invalid_body"),
        ('{"input": "x"}', "unknown_event"),
        ('{"type": "session.update"}', "unknown_event"),
        ('{"type": ["response.create"]}', "unknown_event"),
        (create(input=7), "invalid_request"),
        (create(input="x" * LIMIT), "body_too_large"),
    ],
)
def test_each_invalid_message_has_its_error_code(text, code):
    with pytest.raises(ApiError) as raised:
        Turns(LIMIT).read(text)
    assert raised.value.code == code


def test_history_over_the_limit_is_refused_and_not_kept():
    turns = Turns(LIMIT)
    first, _ = read(turns, input="x" * (LIMIT // 2))
    turns.answered(first, completed("resp_1", item("y" * (LIMIT // 3), "assistant")))
    with pytest.raises(ApiError) as raised:
        turns.read(create(previous_response_id="resp_1", input="z" * (LIMIT // 3)))
    assert raised.value.status == 413
    turns.answered(first, completed("resp_2", item("y" * LIMIT, "assistant")))
    _, body = read(turns, previous_response_id="resp_2", input="Go on")
    assert body["previous_response_id"] == "resp_2", "left to the engine"


@pytest.mark.parametrize(
    "event", [b"", b"[]", b'{"response": {}}', b'{"response": {"id": 1, "output": 2}}']
)
def test_unknown_event_changes_nothing(event):
    turns = Turns(LIMIT)
    first, _ = read(turns, input="Hello")
    turns.answered(first, completed("resp_1"))
    turns.answered(first, event)
    _, body = read(turns, previous_response_id="resp_1", input="Go on")
    assert body["previous_response_id"] is None
