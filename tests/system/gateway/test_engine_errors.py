"""Errors of engines in the form of each API, over each transport, with the texts of vLLM 0.32."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import openai
import pytest
from support.batches import line as batch_line
from support.batches import lines, run
from websockets.asyncio.client import connect

pytestmark = [pytest.mark.system, pytest.mark.anyio]

ASK: Any = [{"role": "user", "content": "hello"}]
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
DEAD = {
    "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}
CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"tiny","choices":'
    b'[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
)
TEXT = b'data: {"id":"c","object":"text_completion","choices":[{"index":0,"text":"hi"}]}\n\n'


def refusal(text: str, param: str = "temperature") -> dict[str, Any]:
    return {"message": text, "type": "BadRequestError", "param": param, "code": 400}


NEGATIVE = refusal(
    "temperature must be non-negative, got -3.0. (parameter=temperature, value=-3.0)"
)
LONG = refusal(
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least "
    "2049 input tokens, which exceeds this limit even without any output tokens. Please reduce the "
    "length of the input prompt. (parameter=input_tokens, value=2049)",
    "input_tokens",
)
INVALID = refusal(
    "1 validation error:\n  {'type': 'value_error', 'loc': 'body.max_tokens', 'msg': 'Value error, "
    "max_tokens must be positive', 'input': '0', 'ctx': {'error': ValueError('max_tokens must be "
    "positive')}}",
    "body.max_tokens",
)


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n".encode()


def refusing(error: dict[str, Any]) -> Any:
    """Return the script of an engine that refuses each call."""

    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"error": error}, "400 Bad Request")

    return script


BEGUN = {
    "/v1/chat/completions": CHUNK,
    "/v1/completions": TEXT,
    "/v1/responses": event("response.created", sequence_number=0, response={"id": "resp_1"}),
    "/v1/messages": event("message_start", message={"id": "m", "usage": {"input_tokens": 1}}),
}


def failing(error: dict[str, Any], **more: bytes) -> Any:
    """Return the script of an engine that begins a stream, and then says an error."""

    async def script(wire: Any, request: Any) -> None:
        path = request.target
        said = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps({"error": error}).encode()
        if path == "/v1/messages":
            said = event("error", error={"type": "internal_error", "message": error["message"]})
        elif path == "/v1/responses":
            said = event("error", error=error)
            said += event("response.failed", response={"id": "resp_1", "error": error})
        await wire.stream(BEGUN[path], said)

    return script


def body_of(path: str, **members: Any) -> dict[str, Any]:
    prompt = {"/v1/responses": "input", "/v1/completions": "prompt"}.get(path)
    said = {prompt: "hello"} if prompt else {"messages": ASK, "max_tokens": 5}
    return {"model": "tiny"} | said | members


async def receipt(gateway: Any, got: httpx.Response) -> Any:
    return (await gateway.client.get(f"/v1/receipts/{got.headers['x-request-id']}")).json()


@pytest.mark.parametrize("path", PATHS)
async def test_a_refused_call_has_its_apis_form(path: str, engine: Any, weft: Any) -> None:
    async with engine(script=refusing(NEGATIVE)) as stub, weft(stub) as gateway:
        for stream in (False, True):
            got = await gateway.client.post(path, json=body_of(path, stream=stream))
            assert got.status_code == 400
            words = "temperature must be non-negative, got -3.0."
            if path == "/v1/messages":
                inner = {"type": "invalid_request_error", "message": words}
                request_id = got.headers["x-request-id"]
                assert got.json() == {"type": "error", "error": inner, "request_id": request_id}
            else:
                inner = {"message": words, "type": "invalid_request_error"}
                inner |= {"param": "temperature", "code": None}
                assert got.json() == {"error": inner}


async def on_websocket(gateway: Any) -> Any:
    async with connect(gateway.url.replace("http", "ws", 1) + "/v1/responses") as client:
        await client.send(json.dumps({"type": "response.create", "model": "tiny", "input": "hi"}))
        while True:
            read = json.loads(await client.recv())
            if read["type"] in ("error", "response.failed"):
                return read


async def test_a_refused_call_over_a_websocket_has_no_number_as_code(
    engine: Any, weft: Any
) -> None:
    # Codex takes an event with a number as code for no event, and waits until its timeout.
    async with engine(script=refusing(NEGATIVE)) as stub, weft(stub) as gateway:
        read = await on_websocket(gateway)
        assert (read["type"], read["status"]) == ("error", 400)
        assert (read["error"]["code"], read["error"]["type"]) == (None, "invalid_request_error")


async def test_a_prompt_that_is_too_long_has_what_clients_look_for(engine: Any, weft: Any) -> None:
    async with engine(script=refusing(LONG)) as stub, weft(stub) as gateway:
        for path in PATHS:
            for stream in (False, True):
                got = await gateway.client.post(path, json=body_of(path, stream=stream))
                error = got.json()["error"]
                assert got.status_code == 400
                if path == "/v1/messages":
                    # Claude Code reads both numbers.
                    assert error["message"] == "prompt is too long: 2049 tokens > 2048 maximum"
                    continue
                assert error["code"] == "context_length_exceeded"
                assert error["param"] in body_of(path)
                assert "maximum context length is 2048 tokens" in error["message"]
                assert "parameter=" not in error["message"]
        read = await on_websocket(gateway)
        assert (read["type"], read["error"]["code"]) == ("error", "context_length_exceeded")
        count = await gateway.client.post("/v1/messages/count_tokens", json=body_of(PATHS[3]))
        assert count.json()["error"]["message"].startswith("prompt is too long: 2049 tokens")


async def test_errors_in_batches_have_their_apis_form(engine: Any, weft: Any) -> None:
    async with (
        engine(script=refusing(INVALID)) as stub,
        weft(stub) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="a") as client,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="a") as other,
    ):
        batch = await run(client, lines(batch_line(1)))
        text = (await client.files.content(batch.error_file_id)).text
        answer = json.loads(text)["response"]
        assert answer["status_code"] == 400
        assert answer["body"]["error"] == {
            "message": "max_tokens must be positive", "type": "invalid_request_error",
            "param": "max_tokens", "code": None,
        }  # fmt: skip

        params: Any = {"model": "tiny", "max_tokens": 5, "messages": ASK}
        made = await other.messages.batches.create(
            requests=[{"custom_id": "one", "params": params}]
        )
        while made.processing_status != "ended":
            made = await other.messages.batches.retrieve(made.id)
        (result,) = [r async for r in await other.messages.batches.results(made.id)]
        assert result.result.type == "errored"
        failed = result.result.error
        assert failed.error.type == "invalid_request_error"
        assert failed.error.message == "max_tokens must be positive"
        assert failed.request_id


@pytest.mark.parametrize("path", PATHS)
async def test_an_error_within_a_stream_ends_the_answer_as_failed(
    path: str, engine: Any, weft: Any
) -> None:
    async with engine(script=failing(DEAD)) as stub, weft(stub) as gateway:
        gateway.parts.registry.suspicion.set = lambda: None  # No check resets the failures.
        got = await gateway.client.post(path, json=body_of(path, stream=True))
        assert got.text.startswith(BEGUN[path].decode())
        # The engine's reason, once.
        failures = [f for f in got.text.split("\n\n") if "EngineCore" in f]
        assert "[DONE]" not in got.text
        if path == "/v1/responses":
            assert [f.partition("\n")[0] for f in failures] == [
                "event: error", "event: response.failed",
            ]  # fmt: skip
            said = json.loads(failures[1].partition("data: ")[2])["response"]["error"]
            assert said == {"code": "server_error", "message": DEAD["message"]}
        else:
            (failure,) = failures
            said = json.loads(failure.partition("data: ")[2])["error"]
            assert said["message"] == DEAD["message"]
            kind = "api_error" if path == "/v1/messages" else "server_error"
            assert (said["type"], said.get("code")) == (kind, None)
        kept = await receipt(gateway, got)
        assert (kept["outcome"], kept["status"]) == ("error", 200)
        circuit = gateway.parts.registry["r0"].circuit
        assert (circuit.failures, circuit.last_error) == (1, "replica_5xx")
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weft_errors_total{code="replica_5xx"} 1.0' in metrics
        assert 'outcome="error",replica="r0"} 1.0' in metrics


async def test_a_client_that_hangs_up_at_the_error_did_not_abort_the_call(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=failing(DEAD)) as stub,
        weft(stub) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="a", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model="tiny", messages=ASK, stream=True)
        request_id = stream.response.headers["x-request-id"]
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
        await stream.close()
        assert caught.value.message == DEAD["message"]
        headers = {"authorization": "Bearer a"}
        kept = await gateway.client.get(f"/v1/receipts/{request_id}", headers=headers)
        assert kept.json()["outcome"] == "error"


async def test_an_error_that_the_client_caused_is_no_fault_of_the_replica(
    engine: Any, weft: Any
) -> None:
    async with engine(script=failing(NEGATIVE)) as stub, weft(stub) as gateway:
        got = await gateway.client.post(PATHS[0], json=body_of(PATHS[0], stream=True))
        assert "invalid_request_error" in got.text
        assert (await receipt(gateway, got))["outcome"] == "error"
        assert gateway.parts.registry["r0"].circuit.failures == 0


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("(parameter=a, value=" * 50_000, "a" * 256),
        (f"maximum context length is {'9' * 5000}, the prompt contains {'9' * 3000}", "messages"),
    ],
    ids=["beginnings of values", "long numbers"],
)
async def test_an_error_of_any_text_reaches_the_client(
    text: str, param: str, engine: Any, weft: Any
) -> None:
    async with engine(script=refusing(refusal(text, "a" * 9000))) as stub, weft(stub) as gateway:
        got = await gateway.client.post(PATHS[0], json=body_of(PATHS[0]))
        assert got.status_code == 400
        error = got.json()["error"]
        assert (error["message"], error["param"]) == (text[:8192], param)


async def test_errors_of_shared_paths_have_the_form_of_the_client(engine: Any, weft: Any) -> None:
    async with (
        engine() as stub,
        weft(stub, api_keys="a") as gateway,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="a") as client,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="no", max_retries=0) as refused,
    ):
        with pytest.raises(anthropic.NotFoundError) as caught:
            await client.models.retrieve("nope")
        assert caught.value.body["error"]["type"] == "not_found_error"
        with pytest.raises(anthropic.AuthenticationError) as denied:
            await refused.models.list()
        assert denied.value.body["error"]["type"] == "authentication_error"
        mark = {"anthropic-version": "2023-06-01", "x-api-key": "a"}
        for method, path, status in (("GET", "/v1/none", 404), ("PUT", "/v1/models", 405)):
            got = await gateway.client.request(method, path, headers=mark)
            assert (got.status_code, got.json()["type"]) == (status, "error")
            got = await gateway.client.request(method, path, headers={"x-api-key": "a"})
            assert got.json()["error"].keys() == {"message", "type", "param", "code"}
        got = await gateway.client.get("/v1/chat/completions", headers=mark)
        assert got.json()["error"].keys() == {"message", "type", "param", "code"}
