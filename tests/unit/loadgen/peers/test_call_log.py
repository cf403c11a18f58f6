"""The call log of vLLM's API server, without an engine."""

from __future__ import annotations

import json

import pytest
from weft_bench.peers.call_log import PATH, CallLog, answered

USAGE = {
    "prompt_tokens": 64, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 32},
}  # fmt: skip
ANSWER = {"id": "chatcmpl-1", "usage": USAGE}


def test_logged_answer_has_its_tokens_and_seconds():
    assert answered(json.dumps(ANSWER).encode(), 0.5) == {
        "id": "chatcmpl-1", "prompt_tokens": 64, "cached_tokens": 32, "output_tokens": 3,
        "used_s": 0.5,
    }  # fmt: skip
    plain = {"id": "x", "usage": USAGE | {"prompt_tokens_details": None}}
    assert answered(json.dumps(plain).encode(), 0.5)["cached_tokens"] == 0
    assert answered(b"data: {}", 0.5) is None
    assert answered(b'{"error": {}}', 0.5) is None


async def request(log: CallLog, path: str, method: str = "GET") -> bytes:
    sent: list[bytes] = []

    async def send(message):
        sent.append(message.get("body", b""))

    await log({"type": "http", "path": path, "method": method}, None, send)
    return b"".join(sent)


@pytest.mark.anyio
async def test_calls_are_logged_listed_and_cleared_and_pass_unchanged():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        text = json.dumps(ANSWER).encode()
        await send({"type": "http.response.body", "body": text[:10], "more_body": True})
        await send({"type": "http.response.body", "body": text[10:]})

    log = CallLog(app)
    assert json.loads(await request(log, "/v1/chat/completions", "POST")) == ANSWER
    await request(log, "/health")
    (call,) = json.loads(await request(log, PATH))["calls"]
    assert call["id"] == "chatcmpl-1"
    assert json.loads(await request(log, PATH, "DELETE")) == {"calls": []}
