"""Budgets over HTTP: of programs with their sub-agents, of keys and of classes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx
import openai
import pytest
from support import batches, http_runs
from support.stack import free_port
from support.waiting import RUN_S

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SAID = {"role": "user", "content": "hi"}
LEFT = "x-weft-budget-left"


async def stock(wire: Any, request: Any) -> None:
    """Answer with 10 prompt tokens, 4 of them cached, and 5 output tokens for each answer."""
    body = request.json
    out = 5 * body.get("n", 1)
    if request.target == "/v1/messages":
        usage = {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": out}
        await wire.plain({"id": "m", "type": "message", "content": [], "usage": usage})
        return
    usage = {"prompt_tokens": 10, "completion_tokens": out}
    usage |= {"prompt_tokens_details": {"cached_tokens": 4}}
    if body.get("stream"):
        last = json.dumps({"id": "c", "choices": [], "usage": usage}).encode()
        await wire.stream(b'data: {"choices":[]}\n\n', b"data: %b\n\ndata: [DONE]\n\n" % last)
    else:
        await wire.plain({"id": "c", "choices": [], "usage": usage})


def call(
    gateway: Any, program: str = "p", path: str = "/v1/chat/completions", **options: Any
) -> Any:
    headers = {"x-weft-program": program} | options.pop("headers", {})
    body = {"messages": [SAID], "max_tokens": 5} | options
    return gateway.call(path, body=body, headers=headers)


async def budget(gateway: Any, program: str = "p", **members: Any) -> dict[str, Any]:
    """Change a session's budget, and return its body."""
    answer = await gateway.client.patch(f"/v1/sessions/{program}", json={"budget": members})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_program_stops_at_its_budget_and_goes_on_once_it_is_raised(
    engine: Any, weft: Any
) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub) as gateway:
        new = {"id": "p", "budget": {"tokens": 30, "calls": 9}}
        created = (await gateway.client.post("/v1/sessions", json=new)).json()
        assert created["budget"] == {"tokens": 30, "calls": 9, "at_limit": "refuse"}
        lefts = [(await call(gateway, stream=stream)).headers[LEFT] for stream in (False, True)]
        # The headers of a stream come before its usage.
        assert lefts == ["tokens=15, calls=8", "tokens=15, calls=8"]
        refused = await call(gateway)
        assert (refused.status_code, refused.headers[LEFT]) == (429, "tokens=0, calls=7")
        error = refused.json()["error"]
        assert error["code"] == "budget_exhausted"
        assert "tokens 0 left of 30; raise it with PATCH /v1/sessions/p" in error["message"]
        assert refused.headers["x-should-retry"] == "false"
        # A sub-agent's session counts on its root.
        child = {"x-session-id": "q", "x-parent-session-id": "p"}
        body = {"messages": [SAID], "max_tokens": 5}
        assert (await gateway.call(body=body, headers=child)).status_code == 429
        raised = await budget(gateway, tokens=46)
        assert raised["left"] == {"tokens": 16, "calls": 7}
        assert raised["used"] == {"tokens": 30, "calls": 2}
        assert [(await call(gateway)).status_code for _ in range(3)] == [200, 200, 429]
        assert (await call(gateway, "another")).status_code == 200
        gone = await gateway.client.patch("/v1/sessions/p", json={"budget": None})
        assert "budget" not in gone.json()
        assert (await call(gateway)).status_code == 200


async def test_anthropics_client_gets_its_error(engine: Any, weft: Any) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub) as gateway:
        asked = {"x-weft-program": "p", "x-weft-budget": '{"cached_tokens": 8}'}
        client = anthropic.AsyncAnthropic(
            base_url=gateway.url, api_key="x", default_headers=asked, max_retries=3
        )
        ask: Any = {"model": "tiny", "max_tokens": 5, "messages": [SAID]}
        for _ in range(2):
            await client.messages.create(**ask)
        with pytest.raises(anthropic.RateLimitError, match=r"budget_exhausted: .*cached_tokens"):
            await client.messages.create(**ask)
        assert len(stub.requests) == 2
        # The header is the budget of a program without one: it does not take back a raise.
        await budget(gateway, cached_tokens=100)
        await client.messages.create(**ask)
        await client.close()


async def test_openais_client_does_not_repeat_a_refused_call(engine: Any, weft: Any) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub) as gateway:
        asked = {"x-weft-program": "p", "x-weft-budget": '{"output_tokens": 10}'}
        client = openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key="x", default_headers=asked, max_retries=3
        )
        ask: Any = {"model": "tiny", "messages": [SAID], "n": 2}
        await client.chat.completions.create(**ask)
        with pytest.raises(openai.RateLimitError) as error:
            await client.chat.completions.create(**ask)
        assert error.value.code == "budget_exhausted"
        assert len(stub.requests) == 1
        await client.close()


async def test_calls_at_once_wait_for_what_others_reserve(engine: Any, weft: Any) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub) as gateway:
        new = {"id": "p", "budget": {"calls": 3, "tokens": 10_000}}
        await gateway.client.post("/v1/sessions", json=new)
        answers = await asyncio.gather(*[call(gateway) for _ in range(8)])
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses == [200] * 3 + [429] * 5
        # Each answer may use all that is left: they follow one another, and one is over.
        await budget(gateway, tokens=100, calls=None)
        await asyncio.gather(*[call(gateway, max_tokens=10_000) for _ in range(8)])
        session = (await gateway.client.get("/v1/sessions/p")).json()
        assert 100 <= session["used"]["tokens"] < 100 + 15
        assert session["reserved"]["tokens"] == 0


async def test_a_held_call_waits_for_the_raise_and_its_stream_stays_alive(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub, heartbeat_s=0.05) as gateway:
        new = {"id": "p", "budget": {"calls": 1, "at_limit": "hold"}}
        await gateway.client.post("/v1/sessions", json=new)
        assert (await call(gateway)).status_code == 200
        body = {"model": "tiny", "messages": [SAID], "stream": True}
        headers = {"x-weft-program": "p"}
        async with gateway.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=headers
        ) as answer:
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith(":")
            assert len(stub.requests) == 1
            await budget(gateway, calls=2)
            assert "data: [DONE]" in [line async for line in lines]
        # A client that leaves ends the wait.
        left = asyncio.create_task(call(gateway))
        metric = gateway.parts.metrics.budget_limits.labels("program", "hold")
        await until(lambda: metric.value == 2)
        left.cancel()
        assert gateway.in_flight() == 0


async def test_a_warning_is_a_header_and_an_event(engine: Any, weft: Any) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub) as gateway:
        new = {"id": "p", "budget": {"tokens": 10, "at_limit": "warn"}}
        await gateway.client.post("/v1/sessions", json=new)
        async with gateway.client.stream("GET", "/v1/sessions/p/events") as events:
            answers = [await call(gateway) for _ in range(2)]
            assert [answer.headers[LEFT] for answer in answers] == ["tokens=-5", "tokens=-20"]
            async for line in events.aiter_lines():
                if line.startswith("data: ") and "weft.budget" in line:
                    event = json.loads(line.removeprefix("data: "))
                    assert (event["then"], event["spent"]) == ("warn", ["tokens"])
                    break


async def test_a_disconnect_pays_for_its_prompt(engine: Any, weft: Any, until: Any) -> None:
    async def script(wire: Any, request: Any) -> None:
        await wire.stream(b'data: {"choices":[]}\n\n', end=False)
        await wire.closed()

    async with engine(script=script, weft=False) as stub, weft(stub) as gateway:
        await gateway.client.post("/v1/sessions", json={"id": "p", "budget": {"tokens": 10**6}})
        body = {"model": "tiny", "messages": [SAID], "stream": True}
        async with gateway.client.stream(
            "POST", "/v1/chat/completions", json=body, headers={"x-weft-program": "p"}
        ) as answer:
            await anext(answer.aiter_lines())
        await until(lambda: gateway.in_flight() == 0)
        session = (await gateway.client.get("/v1/sessions/p")).json()
        assert session["used"]["tokens"] > 0
        assert session["reserved"]["tokens"] == 0


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"tokns": 5}, "budget.tokns"),
        ({"tokens": -1}, "budget.tokens"),
        ({"calls": "5"}, "budget.calls"),
        ({"wall_s": True}, "budget.wall_s"),
        ({"at_limit": "stop"}, "budget.at_limit"),
        ({"dollars": 1.0}, "budget.dollars"),
    ],
)
async def test_a_wrong_budget_names_its_member(
    members: Any, path: str, engine: Any, weft: Any
) -> None:
    async with engine(script=stock) as stub, weft(stub) as gateway:
        await gateway.client.post("/v1/sessions", json={"id": "p"})
        answers = [
            await gateway.client.patch("/v1/sessions/p", json={"budget": members}),
            await gateway.client.post("/v1/sessions", json={"id": "q", "budget": members}),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, path)
        header = await call(gateway, headers={"x-weft-budget": json.dumps(members)})
        param = path.replace("budget", "x-weft-budget")
        assert (header.status_code, header.json()["error"]["param"]) == (400, param)
        unknown = await gateway.client.patch("/v1/sessions/x", json={"budget": {"calls": 1}})
        assert unknown.status_code == 404


KEYS_FILE = """
[keys.search]
key = "search"
budget = {{ dollars = 0.0003, per = "month" }}
[keys.other]
key = "other"
[classes.chat]
budget = {{ calls = {calls} }}
"""


async def test_keys_and_classes_pay_over_gateways(
    engine: Any, weft: Any, redis: Any, tmp_path: Path
) -> None:
    keys, slos, prices = (tmp_path / name for name in ("keys.toml", "slo.yaml", "prices.toml"))
    keys.write_text(KEYS_FILE.format(calls=5))
    slos.write_text("version: 1\ndefault: chat\nclasses: {chat: {}}\n")
    # Ten prompt tokens, four of them cached, and five of the answer: 6 + 2 + 100 microdollars.
    prices.write_text('[[price]]\nmodel = "tiny"\ninput = 1\ncached = 0.5\noutput = 20\n')
    settings = {"keys_file": str(keys), "slo_file": str(slos), "prices_file": str(prices)}
    settings["redis_url"] = redis.url
    async with (
        engine(script=stock, weft=False) as stub,
        weft(stub, **settings) as left,
        weft(stub, **settings) as right,
    ):

        async def of(gateway: Any, key: str) -> Any:
            program = f"p{len(stub.requests)}"
            return await call(gateway, program, headers={"authorization": f"Bearer {key}"})

        answers = [await of(gateway, "search") for gateway in (left, right, left, right)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[0].headers[LEFT] == "dollars=0.0003, calls=5"
        assert answers[3].headers[LEFT] == "dollars=-0.000024, calls=2"
        assert "of key search in the keys file" in answers[3].json()["error"]["message"]
        answers = [await of(gateway, "other") for gateway in (left, right, left)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert "class chat" in answers[2].json()["error"]["message"]
        keys.write_text(KEYS_FILE.format(calls=6))
        left.parts.reload_keys()
        assert (await of(left, "other")).status_code == 200


@contextlib.asynccontextmanager
async def process(replica: str, redis: str) -> AsyncIterator[Any]:
    """A gateway as a process of its own, which may be killed."""
    port = free_port()
    command = ("serve", "--replica", f"r0={replica}", "--port", str(port), "--redis", redis)
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "weft_gateway.cli", *command)
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=RUN_S, trust_env=False) as client:
            async with asyncio.timeout(RUN_S):
                while True:
                    with contextlib.suppress(httpx.HTTPError):
                        if (await client.get("/health")).status_code == 200:
                            break
                    await asyncio.sleep(0.05)

            async def ask(path: str, body: Any, headers: Any) -> httpx.Response:
                return await client.post(path, json={"model": "tiny"} | body, headers=headers)

            yield SimpleNamespace(client=client, call=ask, process=child)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_a_killed_gateway_loses_nothing_of_a_budget(
    engine: Any, weft: Any, until: Any, redis: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        await (wire.closed() if request.json.get("n") else stock(wire, request))

    async with (
        engine(script=script, weft=False) as stub,
        process(stub.url, redis.url) as left,
        process(stub.url, redis.url) as right,
    ):
        new = {"id": "p", "budget": {"calls": 10, "tokens": 200}}
        assert (await left.client.post("/v1/sessions", json=new)).status_code == 201
        for gateway in (left, right) * 2:
            assert (await call(gateway)).status_code == 200
        lost = [asyncio.create_task(call(left, n=1)) for _ in range(3)]
        await until(lambda: len(stub.requests) == 7)
        left.process.kill()
        failed = await asyncio.gather(*lost, return_exceptions=True)
        assert all(isinstance(one, httpx.HTTPError) for one in failed)
        # What the lost calls may have used stays reserved: others wait for it.
        waiting = [asyncio.create_task(call(right)) for _ in range(6)]
        await until(lambda: sum(one.done() for one in waiting) == 3)
        found = (await right.client.get("/v1/sessions/p")).json()
        assert (found["used"], found["reserved"]["calls"]) == ({"calls": 7, "tokens": 105}, 3)
        # A gateway closes the lost calls when their leases have passed.
        async with weft(stub, redis_url=redis.url, call_lease_s=2.0) as third:
            answers = await asyncio.gather(*waiting)
            assert sorted(one.status_code for one in answers) == [200] * 3 + [429] * 3
            found = (await right.client.get("/v1/sessions/p")).json()
            assert found["used"] == {"calls": 10, "tokens": 105}
            assert found["reserved"] == {"calls": 0, "tokens": 0}
            await budget(third, calls=11)
            answers = await asyncio.gather(*(call(one) for one in (third, right) * 2))
            assert sorted(one.status_code for one in answers) == [200] + [429] * 3


async def test_requests_of_a_batch_beyond_the_budget_of_its_key_fail(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[keys.a]\nkey = "sk-a"\nbudget = { tokens = 10 }\n')
    async with (
        engine(script=batches.chat) as stub,
        weft(stub, keys_file=str(keys)) as gateway,
        batches.client_of(gateway) as client,
    ):
        asked = [batches.line(number, max_tokens=2) for number in range(4)]
        ended = await batches.run(client, batches.lines(*asked))
        counts = ended.request_counts
        assert (counts.completed, counts.failed, len(stub.requests)) == (2, 2, 2)
        failed = await batches.content(client, ended.error_file_id)
        codes = {one["response"]["body"]["error"]["code"] for one in failed.values()}
        assert codes == {"budget_exhausted"}


async def test_the_key_of_a_run_and_of_prefills_pays(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[keys.a]\nkey = "sk-a"\nbudget = { calls = 2 }\n')
    async with (
        engine(script=http_runs.chat) as stub,
        weft(stub, keys_file=str(keys)) as gateway,
    ):
        key = http_runs.headers_of("sk-a")
        prefill = {"model": "tiny", "messages": [SAID], "session_id": "s"}
        first = await gateway.client.post("/v1/hints/prefill", json=prefill, headers=key)
        assert first.status_code == 201
        # A refusal is final: no row waits for half an hour.
        rows = [{"text": "one"}, {"text": "two"}, {"text": "three"}]
        ran, _ = await http_runs.run(gateway.client, http_runs.SAY, rows=rows)
        assert ran["row_counts"] == {"total": 3, "completed": 1, "failed": 2}
        again = await gateway.client.post("/v1/hints/prefill", json=prefill, headers=key)
        assert (again.status_code, again.json()["error"]["code"]) == (429, "budget_exhausted")
        assert len(stub.requests) == 2
