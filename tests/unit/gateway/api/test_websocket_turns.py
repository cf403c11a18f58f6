"""Messages of a Responses WebSocket, as bodies of `POST /v1/responses`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from weft_gateway.api.websocket_turns import prepared_events, read_turn
from weft_gateway.errors import ApiError


def create(**members: Any) -> str:
    return json.dumps({"type": "response.create", "model": "m"} | members)


def test_turn_becomes_a_streamed_call_with_the_members_of_its_message():
    turn = read_turn(create(input="Hello", store=False, background=True, temperature=0))
    expected = {"model": "m", "input": "Hello", "store": False, "temperature": 0, "stream": True}
    assert json.loads(turn.body) == expected
    assert turn.generate


def test_turn_without_generation_has_the_events_of_an_empty_answer():
    turn = read_turn(create(input="Hello", generate=False, previous_response_id="resp_0"))
    assert not turn.generate
    assert "generate" not in json.loads(turn.body)
    created, done = prepared_events(turn, "resp_1", 7.0)
    assert (created["type"], done["type"]) == ("response.created", "response.completed")
    assert (done["response"]["id"], done["response"]["status"]) == ("resp_1", "completed")
    assert done["response"]["previous_response_id"] == "resp_0"


def test_items_of_a_message_pass_unchanged():
    """Items are not parsed. Parsing millions of tiny items would take seconds."""
    text = '{"type": "response.create", "model": "m", "input": [ {"a" : 1e2}, {} ] }'
    assert b'[ {"a" : 1e2}, {} ]' in read_turn(text).body


def test_processed_message_starts_no_turn():
    assert read_turn('{"type": "response.processed", "response_id": "resp_1"}') is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_json"),
        ("[1]", "invalid_body"),
        ('{"input": "x"}', "unknown_event"),
        ('{"type": "session.update"}', "unknown_event"),
        ('{"type": ["response.create"]}', "unknown_event"),
    ],
)
def test_each_invalid_message_has_its_error_code(text, code):
    with pytest.raises(ApiError) as raised:
        read_turn(text)
    assert raised.value.code == code
