"""The call log of vLLM's API server, without an engine."""

from __future__ import annotations

import json

import pytest
from weft_bench.peers.call_log import PATH, CallLog, answered, with_tool_call
from weft_bench.peers.contents import body_of
from weft_bench.workloads.schema import TraceCall
from weft_gateway.policies.goals import calls_tools

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


async def request(log: CallLog, path: str, method: str = "GET", body: bytes = b"") -> bytes:
    sent: list[bytes] = []
    sizes: list[bytes] = []

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message.get("body", b""))
        sizes.extend(
            value for name, value in message.get("headers", ()) if name == b"content-length"
        )

    await log({"type": "http", "path": path, "method": method}, receive, send)
    assert all(int(size) == len(b"".join(sent)) for size in sizes)
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


@pytest.mark.anyio
async def test_answer_to_a_call_that_asks_for_it_calls_a_tool():
    answer = ANSWER | {"choices": [{"message": {"content": "x"}, "finish_reason": "length"}]}
    text = json.dumps(answer).encode()

    async def app(scope, receive, send):
        await receive()
        length = (b"Content-Length", str(len(text)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": text})

    log, path = CallLog(app), "/v1/chat/completions"
    messages = [{"role": "user", "content": "x"}]
    for calls_tool in (False, True):
        body = body_of(TraceCall(), messages, "m", 3, calls_tool=calls_tool)
        found = json.loads(await request(log, path, "POST", body))
        assert found["choices"][0]["message"]["content"] == "x"
        assert calls_tools(found) is calls_tool
        assert found["usage"] == USAGE
    assert len(json.loads(await request(log, PATH))["calls"]) == 2


def test_errors_get_no_tool_call():
    assert with_tool_call(b'{"error": {}}') == b'{"error": {}}'
    assert with_tool_call(b"no JSON") == b"no JSON"
