"""The calls of Table 1 on the wire, sent by real clients."""

import openai
import pytest
from support.scripted_server import answer_frames, scripted
from weft_programs.hints import AsyncHints, Hints, Prefill

MESSAGES = [{"role": "user", "content": "hi"}]
COMPLETION = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "tiny",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "Hello."}}],
}  # fmt: skip


def server_of_hints(asked):
    if asked.path.endswith("/extend"):
        return answer_frames("Hello.") if asked.json.get("stream") else (200, COMPLETION)
    if asked.path.endswith("/prefill"):
        return 201, {"id": "pf_/1", "object": "weft.prefill", "status": "running", "expires_at": 9}
    return 200, {}


EXPECTED = [
    ("POST", "/v1/hints/prefill", {"model": "tiny", "messages": MESSAGES, "ttl_s": 3}),
    ("POST", "/v1/hints/prefill/pf_%2F1/extend", {"model": "tiny", "messages": MESSAGES}),
    ("DELETE", "/v1/hints/prefill/pf_%2F1", None),
    (
        "POST",
        "/v1/hints/tags",
        {"session_id": "p", "tags": [{"messages": [0, 1], "tag": "SYSTEM_PROMPT"}]},
    ),
    ("POST", "/v1/hints/priority", {"session_id": "p", "priority": 2, "ttl_s": 5}),
]


def sent(server):
    return [(asked.method, asked.path, asked.json) for asked in server.asked]


def test_blocking_client_sends_the_expected_requests():
    with (
        scripted(server_of_hints) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="x") as client,
    ):
        hints = Hints(client, "p")
        prefill = hints.submit_partial_prefill("tiny", MESSAGES, ttl_s=3)
        assert prefill == Prefill("pf_/1", "running", 9)
        answer = hints.extend_prefill(prefill, model="tiny", messages=MESSAGES)
        assert answer.choices[0].message.content == "Hello."
        hints.discard_prefill("pf_/1")
        hints.tag_kv_blocks([(0, 1, "SYSTEM_PROMPT")])
        hints.set_reuse_priority(2, ttl_s=5)
        assert sent(server) == EXPECTED
        chunks = hints.extend_prefill(prefill, model="tiny", messages=MESSAGES, stream=True)
        assert next(iter(chunks)).choices[0].delta.content == "Hello."


@pytest.mark.anyio
async def test_async_client_sends_the_expected_requests():
    with scripted(server_of_hints) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
            hints = AsyncHints(client, "p")
            prefill = await hints.submit_partial_prefill("tiny", MESSAGES, ttl_s=3)
            answer = await hints.extend_prefill(prefill, model="tiny", messages=MESSAGES)
            assert answer.choices[0].message.content == "Hello."
            await hints.discard_prefill(prefill)
            await hints.tag_kv_blocks([(0, 1, "SYSTEM_PROMPT")])
            await hints.set_reuse_priority(2, ttl_s=5)
            assert sent(server) == EXPECTED
            stream = await hints.extend_prefill(
                prefill, model="tiny", messages=MESSAGES, stream=True
            )
            text = [chunk.choices[0].delta.content async for chunk in stream]
            assert text[0] == "Hello."


@pytest.mark.parametrize("status", [404, 409, 503])
def test_error_is_raised_without_a_retry(status):
    def refuse(asked):
        return status, {"error": {"code": "prefill_prefix_mismatch", "message": "no"}}

    with scripted(refuse) as server, openai.OpenAI(base_url=server.url, api_key="x") as client:
        hints = Hints(client, "p")
        for ask in (
            lambda: hints.submit_partial_prefill("tiny", MESSAGES),
            lambda: hints.extend_prefill("pf", model="tiny", messages=MESSAGES),
        ):
            with pytest.raises(openai.APIStatusError) as caught:
                ask()
            assert (caught.value.status_code, caught.value.code) == (
                status,
                "prefill_prefix_mismatch",
            )
        assert len(server.asked) == 2, "no second try"


@pytest.mark.parametrize("answer", [[], {}, {"id": 1}, "x"])
def test_answer_without_a_handle_is_refused(answer):
    with pytest.raises(ValueError, match="not a partial prefill"):
        Prefill.from_json(answer)
