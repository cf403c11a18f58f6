"""The keys of requests: their order, and which of them share an answer."""

from __future__ import annotations

from typing import Any

import pytest
from weft_gateway.runs.batch_lines import (
    WrongLine,
    id_digest,
    order_key,
    read_line,
    refusal,
    same_answer_key,
)
from weft_gateway.runs.records import Api

CHAT = "/v1/chat/completions"


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def test_common_beginnings_are_neighbours() -> None:
    shared = ["x" * 2000, "y" * 2000]
    keys = sorted((order_key(chat(f"{shared[n % 2]}{n}")), n % 2) for n in range(40))
    groups = [group for _, group in keys]
    assert groups in (20 * [0] + 20 * [1], 20 * [1] + 20 * [0])
    # A longer common beginning is a longer common key.
    one, two = order_key(chat("x" * 4000 + "1")), order_key(chat("x" * 4000 + "2"))
    assert one != two
    assert one[:56] == two[:56]


def test_the_tools_come_before_the_messages() -> None:
    tools = [{"type": "function", "function": {"name": "f" * 300}}]
    with_tools = [order_key(chat(text, tools=tools)) for text in "ab"]
    assert with_tools[0][:4] == with_tools[1][:4] != order_key(chat("a"))[:4]


@pytest.mark.parametrize(
    ("endpoint", "more", "shared"),
    [
        (CHAT, {"temperature": 0}, True),
        (CHAT, {"temperature": 0.0, "n": 1}, True),
        (CHAT, {}, False),
        (CHAT, {"temperature": 0.7, "seed": 1}, False),
        (CHAT, {"temperature": False}, False),
        (CHAT, {"temperature": 0, "n": 2}, False),
        (CHAT, {"temperature": "0"}, False),
        ("/v1/embeddings", {}, True),
        ("/v1/responses", {"temperature": 0}, False),
        ("/v1/responses", {"temperature": 0, "store": False}, True),
    ],
)
def test_only_deterministic_requests_share_an_answer(
    endpoint: str, more: dict[str, Any], shared: bool
) -> None:
    key = same_answer_key(chat("a", **more), endpoint)
    assert bool(key) is shared
    other_order = dict(reversed(chat("a", **more).items()))
    assert same_answer_key(other_order, endpoint) == key
    if shared:
        assert same_answer_key(chat("b", **more), endpoint) != key
        assert same_answer_key(chat("a", **more, max_tokens=4), endpoint) != key


def test_a_request_of_messages() -> None:
    raw = b'{"custom_id": "a", "params": {"model": "m"}}'
    assert read_line(raw, Api.ANTHROPIC, "/v1/messages").read == {"model": "m"}
    with pytest.raises(WrongLine) as error:
        read_line(b'{"custom_id": "a"}', Api.ANTHROPIC, "/v1/messages")
    assert error.value.param == "params"


def test_requests_that_cannot_be_part_of_a_batch() -> None:
    assert refusal({}) == ""
    assert "stream" in refusal({"stream": True})
    assert "background" in refusal({"background": True})


def test_digests_of_custom_ids() -> None:
    assert len({id_digest(text) for text in ("a", "b", "\ud800", "")}) == 4


def test_the_order_inside_a_schema_is_part_of_the_request() -> None:
    one = chat("a", temperature=0, response_format={"reason": 1, "score": 2})
    other = chat("a", temperature=0, response_format={"score": 2, "reason": 1})
    assert same_answer_key(one, CHAT) != same_answer_key(other, CHAT)
