"""Programs that have begun: their calls are held where those of others are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import openai
import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

USER: list[Any] = [{"role": "user", "content": "Hello"}]
CHAT = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "tiny",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}
    ],
}
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"tiny",' + (
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"}}]}\n\n'
)
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "tiny",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


async def answer(wire: Any, request: Any) -> None:
    """Answer as the API does."""
    if request.json.get("stream"):
        await wire.stream(CHUNK, b"data: [DONE]\n\n")
    else:
        await wire.plain(MESSAGE if request.target.startswith("/v1/messages") else CHAT)


async def listen_again(stub: Any) -> asyncio.Server:
    """Restart an engine that has refused, at its address."""
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(stub.handle(reader, writer)))

    port = int(stub.url.rpartition(":")[2])
    return await asyncio.start_server(accept, "127.0.0.1", port, reuse_address=True)


def session(name: str) -> dict[str, str]:
    return {"x-session-id": name}


async def chat(client: openai.AsyncOpenAI, program: str) -> Any:
    return await client.chat.completions.create(
        model="tiny", messages=USER, extra_headers=session(program)
    )


async def streamed(client: openai.AsyncOpenAI, program: str) -> str:
    """Ask for a stream, and return its text."""
    chunks = await client.chat.completions.create(
        model="tiny", messages=USER, stream=True, extra_headers=session(program)
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])


async def test_a_begun_program_does_not_notice_that_all_replicas_are_away(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=answer) as stub,
        weft(stub, heartbeat_s=0.1, health_interval_s=0.05) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k") as ai,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k") as claude,
    ):
        await chat(ai, "begun")
        stub.refuse()
        # The first finds out that the replica is gone, and the others see that there is none.
        first = asyncio.create_task(streamed(ai, "begun"))
        (replica,) = gateway.parts.registry
        await until(lambda: not replica.circuit.alive)
        message = claude.messages.create(
            model="tiny", max_tokens=9, messages=USER, extra_headers=session("begun")
        )
        others = [asyncio.create_task(streamed(ai, "begun")), asyncio.create_task(message)]
        for program in ("new", "new"):
            refused = await gateway.call(headers=session(program))
            assert refused.status_code == 503
            assert 1 <= int(refused.headers["retry-after"]) <= 60
        body = {"model": "tiny", "messages": USER, "stream": True}
        headers = session("begun") | {"authorization": "Bearer k"}
        stream = gateway.client.stream("POST", "/v1/chat/completions", json=body, headers=headers)
        async with stream as held:
            pieces = held.aiter_raw()
            for _ in range(3):
                assert (await anext(pieces)).startswith(b": keep-alive\n\n")
        assert not any(task.done() for task in (first, *others))
        server = await listen_again(stub)
        try:
            assert await first == await others[0] == "Hi"
            assert (await others[1]).content[0].text == "Hi"
        finally:
            server.close()
        story = (await gateway.client.get("/v1/sessions/begun/story")).json()
        assert {one["outcome"] for one in story["receipts"][-2:]} == {"ok"}


async def test_a_client_that_leaves_while_it_is_held_frees_its_place(
    engine: Any, weft: Any, until: Any
) -> None:
    async with engine(script=answer) as stub, weft(stub, heartbeat_s=0.1) as gateway:
        assert (await gateway.call(headers=session("begun"))).status_code == 200
        (replica,) = gateway.parts.registry
        well = replica.circuit
        replica.circuit = well.checked(False)
        large = {"messages": [{"role": "user", "content": "x" * 100_000}]}
        call = asyncio.create_task(gateway.call(body=large, headers=session("begun")))
        await until(lambda: gateway.parts.bodies.total)
        await asyncio.sleep(0.3)
        assert not call.done()
        call.cancel()
        await until(lambda: not gateway.parts.bodies.total)
        replica.circuit = well
        assert (await gateway.call(headers=session("begun"))).status_code == 200
        assert len(stub.requests) == 2


async def test_a_call_is_not_held_forever(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub, hold_s=0.1) as gateway:
        assert (await gateway.call(headers=session("begun"))).status_code == 200
        (replica,) = gateway.parts.registry
        replica.circuit = replica.circuit.checked(False)
        got = await gateway.call(headers=session("begun"))
        assert (got.status_code, got.json()["error"]["code"]) == (503, "no_replica")


@pytest.mark.parametrize("limit", ["calls_in_flight", "requests_per_minute"])
async def test_limits_of_a_key_hold_begun_programs_and_refuse_new_ones(
    limit: str, engine: Any, weft: Any, until: Any
) -> None:
    rate, go = 120, asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        if len(stub.requests) > 2:
            await go.wait()
        await answer(wire, request)

    most = {limit: 1 if limit == "calls_in_flight" else rate}
    async with (
        engine(script=script) as stub,
        weft(stub, **most) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="test") as client,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="test", max_retries=0) as hasty,
    ):
        await chat(client, "begun")
        ask: Any = client.chat.completions.create
        told = [*USER, {"role": "user", "content": "No session"}]
        await ask(model="tiny", messages=told)
        if limit == "requests_per_minute":
            tenant = gateway.parts.auth.caller({b"authorization": b"Bearer test"}).tenant
            rules = gateway.parts.tenants.of(tenant)
            for _ in range(rate - 3):
                assert not (await gateway.parts.stores.limiter.admit(tenant, rules, 1)).refused
        # One is within the limit, and the others wait for it or for the next seconds.
        calls = [asyncio.create_task(chat(client, "begun")) for _ in range(4)]
        await until(lambda: len(stub.requests) == 3)
        # Its messages continue an earlier call.
        told += [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Go on"}]
        calls.append(asyncio.create_task(ask(model="tiny", messages=told)))
        with pytest.raises(openai.RateLimitError) as refused:
            await chat(hasty, "new")
        assert 1 <= int(refused.value.response.headers["retry-after"]) <= 60
        left = asyncio.create_task(chat(client, "begun"))
        await asyncio.sleep(0.2)
        left.cancel()
        go.set()
        assert [got.choices[0].message.content for got in await asyncio.gather(*calls)] == [
            "Hi"
        ] * 5
        assert (await chat(client, "new")).choices[0].message.content == "Hi"


async def test_over_capacity_begun_programs_finish_and_clients_of_new_ones_come_back_when_told(
    engine: Any, weft: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots, told, given = asyncio.Semaphore(2), [], []

    async def script(wire: Any, request: Any) -> None:
        async with slots:
            await asyncio.sleep(0.02)
            await answer(wire, request)

    def spy(kind: Any) -> None:
        """Record what the client was told, and the time that it waits."""
        own = kind._calculate_retry_timeout

        def timeout(self: Any, left: int, options: Any, headers: Any = None) -> float:
            told.append(float(headers["retry-after"]))
            given.append(own(self, left, options, headers))
            return float(given[-1])

        monkeypatch.setattr(kind, "_calculate_retry_timeout", timeout)

    spy(openai.AsyncOpenAI)
    spy(anthropic.AsyncAnthropic)
    async with (
        engine(script=script) as stub,
        weft(stub, new_program_wait_s=0.001) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k") as ai,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k") as claude,
    ):
        for program in range(6):
            await chat(ai, f"begun-{program}")
        (replica,) = gateway.parts.registry
        replica.slots = 2
        came: set[int] = set()

        async def begun(program: int) -> None:
            while len(told) + len(came) < 14:
                await chat(ai, f"begun-{program}")

        async def new(program: int) -> None:
            sent = session(f"new-{program}")
            if program % 2:
                await chat(ai, f"new-{program}")
            else:
                await claude.messages.create(
                    model="tiny", max_tokens=9, messages=USER, extra_headers=sent
                )
            came.add(program)

        running = [asyncio.create_task(begun(program)) for program in range(6)]
        await until(lambda: len(stub.requests) > 40)
        others = [asyncio.create_task(new(program)) for program in range(14)]
        await asyncio.gather(*running)
        # Those that were refused come back together, and may wait for each other.
        gateway.parts.capacity.most_s = 60.0
        await asyncio.gather(*others)
        assert len(came) == 14
        text = (await gateway.client.get("/metrics")).text
        assert f'weft_errors_total{{code="over_capacity"}} {len(told)}.0' in text
    assert told
    assert told == given
    assert all(1 <= seconds <= 60 for seconds in told)


async def test_the_last_room_of_a_gateway_is_for_begun_programs(engine: Any, weft: Any) -> None:
    async with engine(script=answer) as stub, weft(stub) as gateway:
        assert (await gateway.call(headers=session("begun"))).status_code == 200
        gateway.parts.capacity.connections = lambda: 0.9
        assert (await gateway.call(headers=session("begun"))).status_code == 200
        refused = await gateway.call(headers=session("new"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "over_capacity")
        assert 5 <= int(refused.headers["retry-after"]) <= 7
