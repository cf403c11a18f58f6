"""State of the Responses API: what calls may refer to by an id is the gateway's."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import openai
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool
from support.redis_server import RedisServer
from support.waiting import DEADLINE_S
from websockets.asyncio.client import connect

KEYS = ("own", "sk-other")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

OTHER = {"authorization": "Bearer sk-other"}
IMAGE = "data:image/png;base64," + "iVBORw0KGgo" * 500
LOOK = {
    "role": "user",
    "content": [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
    ],
}


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def result(output: list[dict[str, Any]], text: str = "3") -> dict[str, Any]:
    """Return the output of the function call in an answer."""
    (call,) = [item for item in output if item["type"] == "function_call"]
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


class Thinking:
    """The script of an engine without any state: it thinks, and calls a tool or says something."""

    numbers = itertools.count(1)

    def __init__(self) -> None:
        self.unfinished: dict[str, Any] = {}

    def answer(self, body: Any) -> dict[str, Any]:
        number = next(self.numbers)
        last = body["input"][-1] if isinstance(body.get("input"), list) else {}
        output: list[dict[str, Any]] = [
            {
                "id": f"rs_{number}", "type": "reasoning", "summary": [], "status": None,
                "content": [{"type": "reasoning_text", "text": f"Hm {number}"}],
            }
        ]  # fmt: skip
        if body.get("tools") and last.get("type") != "function_call_output":
            output.append(
                {
                    "id": f"fc_{number}", "type": "function_call", "status": "completed",
                    "call_id": f"call_{number}", "name": "look", "arguments": '{"at": "it"}',
                }
            )  # fmt: skip
        else:
            text = {"type": "output_text", "text": f"Answer {number}", "annotations": []}
            output.append(
                {
                    "id": f"msg_{number}", "type": "message", "role": "assistant",
                    "status": "completed", "content": [text],
                }
            )  # fmt: skip
        return {
            "id": f"resp_{number}", "object": "response", "created_at": 1, "status": "completed",
            "model": "tiny", "output": output, "tools": [],
            "previous_response_id": body.get("previous_response_id"),
            "tool_choice": "auto", "parallel_tool_calls": True, "error": None,
            "instructions": body.get("instructions"), "background": body.get("background", False),
            "usage": None,
        }  # fmt: skip

    async def __call__(self, wire: Any, request: Any) -> None:
        _, _, rest = request.target.partition("/v1/responses/")
        if rest:
            found = self.unfinished.get(rest.split("/")[0].split("?")[0])
            if found is None:
                await wire.plain({"error": {"message": "not here"}}, "404 Not Found")
                return
            if rest.endswith("/cancel"):
                found["status"] = "cancelled"
            await wire.plain(found)
            return
        body = request.json
        done = self.answer(body)
        if body.get("background"):
            done |= {"status": "queued", "output": []}
            self.unfinished[done["id"]] = done
        if not body.get("stream"):
            await wire.plain(done)
            return
        begun = {**done, "status": "in_progress", "output": []}
        await wire.stream(
            b"".join(
                f"event: {kind}\ndata: {json.dumps(event | {'type': kind})}\n\n".encode()
                for kind, event in (
                    ("response.created", {"response": begun, "sequence_number": 0}),
                    ("response.output_text.delta", {"delta": "Hm", "sequence_number": 1}),
                    ("response.completed", {"response": done, "sequence_number": 2}),
                )
            )
        )


async def ask(gateway: Any, previous: str | None = None, **more: Any) -> Any:
    """Make a call and return its whole response. Each response in a stream is checked."""
    headers = more.pop("headers", {})
    body = {"input": "x"} | ({"previous_response_id": previous} if previous else {}) | more
    got = await gateway.call("/v1/responses", body=body, headers=headers)
    assert got.status_code == 200, got.text
    if not body.get("stream"):
        answer = got.json()
        assert answer["previous_response_id"] == previous
        return answer
    lines = [line for line in got.text.splitlines() if line.startswith("data: {")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    for event in events:
        if "response" in event:
            assert event["response"]["previous_response_id"] == previous
    return events[-1]["response"]


async def refused(gateway: Any, previous: Any, **more: Any) -> dict[str, Any]:
    body = {"input": "x", "previous_response_id": previous} | more
    headers = body.pop("headers", {})
    got = await gateway.call("/v1/responses", body=body, headers=headers)
    return {"status": got.status_code} | got.json()["error"]


def received(*stubs: Any) -> list[Any]:
    """Return the bodies of the calls that engines received, the last one last."""
    return [one.json for stub in stubs for one in stub.requests if one.target == "/v1/responses"]


TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "redis"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_the_engine_sees_what_a_client_with_the_whole_history_sends(
    shared: bool, stream: bool, redis: RedisServer, engine: Any, weft: Any
) -> None:
    """Calls, their outputs, reasoning and images; on any replica, through any gateway."""
    url = {"redis_url": redis.url} if shared else {}
    async with (
        engine(script=Thinking()) as one,
        engine(script=Thinking()) as two,
        weft(one, two, balancer="round_robin", **url) as left,
        weft(one, two, balancer="round_robin", **url) as right,
    ):
        other = right if shared else left
        first = await ask(left, input=[LOOK], tools=[TOOL], stream=stream, instructions="Be brief")
        done = result(first["output"])
        second = await ask(other, first["id"], input=[done], tools=[TOOL], stream=stream)
        await ask(left, second["id"], input="And now?", tools=[TOOL], stream=stream)
        bodies = received(one, two)
        (last,) = [body for body in bodies if "And now?" in str(body["input"])]
        del last["vllm_xargs"], last["messages"], last["cache_salt"]
        assert last == {
            "model": "tiny",
            "input": [LOOK, *first["output"], done, *second["output"], user("And now?")],
            "tools": [TOOL],
            "stream": stream,
            "store": False,
        }
        assert not any(body.get("previous_response_id") for body in bodies)
        # Any replica can continue, and the program stays the same.
        assert all(len(received(stub)) in (1, 2) for stub in (one, two))
        sessions = (await left.client.get("/v1/sessions")).json()["data"]
        assert [session["calls"] for session in sessions] == [3]


async def test_answers_survive_a_restart_of_gateways_and_engines(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with engine(script=Thinking()) as stub:
        async with weft(stub, redis_url=redis.url) as gateway:
            first = await ask(gateway, input=[LOOK])
            second = await ask(gateway, first["id"], input="Go on")
        async with engine(script=Thinking()) as new, weft(new, redis_url=redis.url) as gateway:
            await ask(gateway, second["id"], input="More")
            whole = [LOOK, *first["output"], user("Go on"), *second["output"], user("More")]
            assert received(new)[-1]["input"] == whole
            got = await gateway.client.get(f"/v1/responses/{second['id']}")
            assert got.json() == second


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "redis"])
async def test_references_to_items_are_replaced_by_the_items(
    shared: bool, redis: RedisServer, engine: Any, weft: Any
) -> None:
    """As the AI SDK sends them for answers that are stored."""
    url = {"redis_url": redis.url} if shared else {}
    async with (
        engine(script=Thinking()) as stub,
        weft(stub, **url) as left,
        weft(stub, **url) as right,
    ):
        first = await ask(left, input="Hello", tools=[TOOL])
        thought, call = first["output"]
        done = result(first["output"])
        named = [{"type": "item_reference", "id": item["id"]} for item in (thought, call)]
        other = right if shared else left
        second = await ask(other, input=[user("Hello"), *named, done], tools=[TOOL])
        assert received(stub)[-1]["input"] == [user("Hello"), thought, call, done]
        # A later call by id has these items, too.
        await ask(left, second["id"], input="And?")
        whole = [user("Hello"), thought, call, done, *second["output"], user("And?")]
        assert received(stub)[-1]["input"] == whole
        count = len(stub.requests)
        for headers, name in (({}, "msg_unknown"), ({}, "\x01"), (OTHER, thought["id"])):
            body = {"input": [{"type": "item_reference", "id": name}]}
            got = await left.call("/v1/responses", body=body, headers=headers)
            error = got.json()["error"]
            assert (got.status_code, error["code"], error["param"]) == (
                404, "item_not_found", "input",
            )  # fmt: skip
        assert len(stub.requests) == count


async def test_a_websocket_continues_answers_of_http_and_its_own(engine: Any, weft: Any) -> None:
    async with (
        engine(script=Thinking()) as stub,
        weft(stub) as gateway,
        connect(
            gateway.url.replace("http", "ws", 1) + "/v1/responses",
            additional_headers={"authorization": f"Bearer {KEYS[0]}"},
            proxy=None,
        ) as client,
    ):

        async def turn(previous: str, **members: Any) -> Any:
            message = {"type": "response.create", "previous_response_id": previous} | members
            await client.send(json.dumps(message))
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    event = json.loads(await client.recv())
                    if "response" in event:
                        assert event["response"]["previous_response_id"] == previous
                    if event["type"] in ("response.completed", "error"):
                        return event.get("response", event)

        first = await ask(gateway, input=[LOOK], tools=[TOOL])
        done = result(first["output"])
        second = await turn(first["id"], input=[done], tools=[TOOL], store=False)
        third = await turn(second["id"], input="And?", store=False)
        whole = [LOOK, *first["output"], done, *second["output"], user("And?")]
        assert received(stub)[-1]["input"] == whole
        # Only this connection keeps answers that are not stored, each of them.
        await turn(second["id"], input="Or?", store=False)
        assert received(stub)[-1]["input"] == [*whole[:-1], user("Or?")]
        stored = await turn(third["id"], input="Well?", store=True)
        await ask(gateway, first["id"], input="HTTP")
        for name in (second["id"], third["id"]):
            assert (await refused(gateway, name))["code"] == "previous_response_not_found"
            assert (await gateway.client.get(f"/v1/responses/{name}")).status_code == 404
        answers = gateway.parts.stores.chains
        assert (await gateway.client.get(f"/v1/responses/{stored['id']}")).json() == stored
    # Its own answers end with it; the others do not.
    names = {name for _, name in answers._answers}
    assert not any(name.startswith("\x02") for name in names)
    assert stored["id"] in names


async def test_stored_answers_are_read_listed_and_deleted(
    redis: RedisServer, engine: Any, weft: Any
) -> None:
    async with (
        engine(script=Thinking()) as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
        openai.AsyncOpenAI(base_url=f"{right.url}/v1", api_key=KEYS[0]) as client,
    ):
        first = await ask(left, input=[LOOK])
        second = await ask(left, first["id"], input="Go on")
        got = await client.responses.retrieve(second["id"])
        assert json.loads(got.model_dump_json(exclude_unset=True)) == second
        items = [item async for item in client.responses.input_items.list(second["id"], limit=2)]
        assert [getattr(item, "role", item.type) for item in items] == [
            "user", "assistant", "reasoning", "user",
        ]  # fmt: skip
        ids = [item.id for item in items]
        assert len(set(ids)) == 4
        assert set(ids) >= {item["id"] for item in first["output"]}
        with pytest.raises(openai.BadRequestError, match="background"):
            await client.responses.cancel(second["id"])
        await client.responses.delete(second["id"])
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(second["id"])
        # It is gone for the gateway that served it, too.
        for gateway in (right, left):
            error = await refused(gateway, second["id"])
            assert (error["status"], error["code"]) == (400, "previous_response_not_found")
        # The engine has not been asked.
        assert {request.target for request in stub.requests} == {"/v1/responses"}


async def test_responses_of_another_tenant_do_not_exist(engine: Any, weft: Any) -> None:
    async with engine(script=Thinking()) as stub, weft(stub) as gateway:
        name = (await ask(gateway))["id"]
        asked = len(stub.requests)
        for method, path in (
            ("GET", name),
            ("DELETE", name),
            ("GET", f"{name}/input_items"),
            ("POST", f"{name}/cancel"),
            ("GET", "resp_of_nobody"),
        ):
            got = await gateway.client.request(method, f"/v1/responses/{path}", headers=OTHER)
            error = got.json()["error"]
            assert (got.status_code, error["code"]) == (404, "response_not_found")
            assert error["type"] == "invalid_request_error"
            assert path.split("/")[0] in error["message"]
        error = await refused(gateway, name, headers=OTHER)
        assert (error["status"], error["code"]) == (400, "previous_response_not_found")
        assert error["param"] == "previous_response_id"
        assert len(stub.requests) == asked
        await ask(gateway, name)


async def test_a_response_with_store_false_is_not_found(engine: Any, weft: Any) -> None:
    async with engine(script=Thinking()) as stub, weft(stub) as gateway:
        name = (await ask(gateway, store=False))["id"]
        assert (await gateway.client.get(f"/v1/responses/{name}")).status_code == 404
        assert (await refused(gateway, name))["code"] == "previous_response_not_found"


async def test_a_chain_continues_after_its_replica_has_died(
    engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=Thinking()) as one,
        engine(script=Thinking()) as two,
        weft(one, two, balancer="round_robin") as gateway,
    ):
        first = await ask(gateway, input="Hello")
        dead, alive = (one, two) if one.requests else (two, one)
        dead.refuse()
        gateway.parts.registry.suspicion.set()
        await until(lambda: any(not each.circuit.alive for each in gateway.parts.registry))
        await ask(gateway, first["id"], input="Go on")
        assert received(alive)[-1]["input"] == [user("Hello"), *first["output"], user("Go on")]
        got = await gateway.client.get(f"/v1/responses/{first['id']}")
        assert got.json() == first


async def test_a_gateway_finds_its_own_responses_during_an_outage(
    redis: RedisServer, engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=Thinking()) as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
    ):
        first = await ask(left, input="Hello")
        redis.kill()
        second = await ask(left, first["id"], input="Go on")
        assert received(stub)[-1]["input"] == [user("Hello"), *first["output"], user("Go on")]
        assert (await right.call()).status_code == 200  # The gateway notices the outage.
        # A gateway answers 503 for a response that it may not know.
        path = f"/v1/responses/{second['id']}"
        assert (await right.client.get(path)).status_code == 503
        assert (await refused(right, second["id"]))["code"] == "table_unavailable"
        redis.start()
        await until(lambda: not (left.parts.table.local or right.parts.table.local))
        await left.parts.stores.chains.flush()
        assert (await right.client.get(path)).json() == second


async def test_an_expanded_body_has_the_limit_of_bodies(engine: Any, weft: Any) -> None:
    async with engine(script=Thinking()) as stub, weft(stub, max_body_bytes=8192) as gateway:
        first = await ask(gateway, input="x" * 5000)
        error = await refused(gateway, first["id"], input="y" * 5000)
        assert (error["status"], error["code"]) == (413, "body_too_large")
        await ask(gateway, first["id"], input="y" * 100)
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        got = await gateway.call("/v1/responses", body={"input": [reference] * 120})
        assert (got.status_code, got.json()["error"]["code"]) == (413, "body_too_large")


async def test_histories_that_are_too_long_to_be_read_are_completed(engine: Any, weft: Any) -> None:
    async with engine(script=Thinking()) as stub, weft(stub, read_body_bytes=65_536) as gateway:
        first = await ask(gateway, input="x" * 70_000)
        # The gateway removes the session's name from the body.
        second = await ask(gateway, first["id"], input=[LOOK], session_id="run")
        whole = [user("x" * 70_000), *first["output"], LOOK]
        assert received(stub)[-1]["input"] == whole
        reference = {"type": "item_reference", "id": second["output"][0]["id"]}
        await ask(gateway, first["id"], input=[reference])
        assert received(stub)[-1]["input"] == [*whole[:-1], second["output"][0]]


async def test_references_are_searched_in_a_bounded_number_of_items(engine: Any, weft: Any) -> None:
    reference = {"type": "item_reference", "id": "msg_none"}
    async with engine(script=Thinking()) as stub, weft(stub) as gateway:
        for item, code in (({}, "too_complex"), (1, "invalid_request")):
            body = {"input": [*[item] * 20_000, reference]}
            got = await gateway.call("/v1/responses", body=body)
            assert (got.status_code, got.json()["error"]["code"]) == (400, code)
        assert not stub.requests


async def test_a_bounded_number_of_input_items_is_listed(engine: Any, weft: Any) -> None:
    async with engine(script=Thinking()) as stub, weft(stub) as gateway:
        for count, status in ((2000, 200), (20_000, 400)):
            answer = await ask(gateway, input=[{}] * count)
            path = f"/v1/responses/{answer['id']}/input_items?limit=1"
            got = await gateway.client.get(path)
            assert got.status_code == status
        assert got.json()["error"]["code"] == "too_complex"


async def test_an_item_does_not_replace_an_answer(engine: Any, weft: Any) -> None:
    item = {"id": "resp_first", "type": "message", "role": "assistant", "content": []}
    names = iter(("resp_first", "resp_second"))

    async def script(wire: Any, request: Any) -> None:
        await wire.plain({"id": next(names), "object": "response", "output": [item]})

    async with engine(script=script) as stub, weft(stub) as gateway:
        for _ in range(2):
            assert (await gateway.call("/v1/responses", body={"input": "x"})).status_code == 200
        got = await gateway.client.get("/v1/responses/resp_first")
        assert got.json()["id"] == "resp_first"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_a_background_response_is_the_engines_until_it_has_ended(
    stream: bool, redis: RedisServer, engine: Any, weft: Any
) -> None:
    script = Thinking()
    async with (
        engine(script=script) as stub,
        weft(stub, redis_url=redis.url) as left,
        weft(stub, redis_url=redis.url) as right,
    ):
        begun = await ask(left, input="Hello", background=True)
        path = f"/v1/responses/{begun['id']}"
        assert (await left.client.get(path)).json()["status"] == "queued"
        error = await refused(left, begun["id"])
        assert (error["status"], error["code"]) == (400, "response_in_progress")
        done = Thinking().answer({"input": "Hello"}) | {"id": begun["id"], "background": True}
        script.unfinished[begun["id"]] = done
        # A call that continues it sees the end, and stores it.
        await ask(left, begun["id"], input="Go on", stream=stream)
        assert received(stub)[-1]["input"] == [user("Hello"), *done["output"], user("Go on")]
        script.unfinished.clear()
        assert (await right.client.get(path)).json() == done
        assert (await right.client.post(f"{path}/cancel")).json() == done
        cancelled = await ask(left, input="Hello", background=True)
        path = f"/v1/responses/{cancelled['id']}"
        assert (await left.client.post(f"{path}/cancel")).json()["status"] == "cancelled"
        assert (await left.client.get(path)).json()["status"] == "cancelled"


async def test_failed_lookups_do_not_exclude_a_replica(engine: Any, weft: Any) -> None:
    """Failed lookups do not count as failures of the replica.

    vLLM drops the connection for `stream=true` on a response that was not created as a background
    stream. Otherwise a client could exclude every replica with three such requests.
    """
    storing_engine = Thinking()

    async def script(wire: Any, request: Any) -> None:
        if "stream=true" in request.target:
            wire.writer.close()
        else:
            await storing_engine(wire, request)

    async with engine(script=script) as stub, weft(stub) as gateway:
        name = (await ask(gateway, background=True))["id"]
        for _ in range(5):
            broken = await gateway.client.get(f"/v1/responses/{name}?stream=true")
            assert broken.status_code == 502
            assert broken.json()["error"]["code"] == "replica_closed"
        circuit = gateway.parts.registry["r0"].circuit
        assert (circuit.healthy, circuit.failures) == (True, 0)
        name = (await ask(gateway))["id"]
        got = await gateway.client.get(f"/v1/responses/{name}?stream=true")
        assert (got.status_code, got.json()["error"]["param"]) == (400, "stream")


@pytest.mark.parametrize("previous", [{"a": "b" * 70_000}, ["x"], 7])
async def test_a_previous_response_id_must_be_a_string(
    engine: Any, weft: Any, previous: Any
) -> None:
    async with engine(script=Thinking()) as stub, weft(stub) as gateway:
        body = {"input": ["x" * 5_000_000], "previous_response_id": previous}
        got = await gateway.call("/v1/responses", body=body)
        assert got.status_code == 400
        assert "must be a string" in got.json()["error"]["message"]


async def test_the_agents_sdk_continues_its_own_calls(engine: Any, weft: Any) -> None:
    """It sends only the output of a tool, with the id of the answer that called the tool."""

    @function_tool
    def look(at: str) -> str:
        """Look at something."""
        return f"seen {at}"

    async with (
        engine(script=Thinking()) as stub,
        weft(stub) as gateway,
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEYS[0]) as client,
    ):
        agent = Agent(
            name="a",
            tools=[look],
            model=OpenAIResponsesModel(model="tiny", openai_client=client),
            model_settings=ModelSettings(temperature=0),
        )
        done = await Runner.run(agent, "Hello", auto_previous_response_id=True)
        assert done.final_output.startswith("Answer")
        kinds = [item.get("type", "message") for item in received(stub)[-1]["input"]]
        assert kinds == ["message", "reasoning", "function_call", "function_call_output"]


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
async def test_a_conversation_that_is_not_stored_is_an_error(
    conversation: Any, engine: Any, weft: Any
) -> None:
    """An engine would ignore the name, and answer without the history."""
    async with engine(script=Thinking()) as stub, weft(stub) as gateway:
        got = await gateway.call("/v1/responses", body={"input": "x", "conversation": conversation})
        error = got.json()["error"]
        assert (got.status_code, error["code"]) == (404, "conversation_not_found")
        assert error["param"] == "conversation"
        assert "previous_response_id" in error["message"]
        assert not stub.requests


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "responses/compact"),
        ("POST", "responses/input_tokens"),
        ("POST", "p/run/v1/responses/compact"),
        ("POST", "conversations"),
        ("GET", "conversations/conv_1/items"),
        ("POST", "realtime/calls"),
    ],
)
async def test_routes_that_only_openai_has_are_not_found(
    method: str, path: str, engine: Any, weft: Any
) -> None:
    async with engine(script=Thinking()) as stub, weft(stub) as gateway:
        url = f"/{path}" if path.startswith("p/") else f"/v1/{path}"
        got = await gateway.client.request(method, url, json={"model": "tiny", "input": []})
        error = got.json()["error"]
        assert (got.status_code, error["type"], error["code"]) == (
            404, "invalid_request_error", "unknown_url",
        )  # fmt: skip
        assert path.removeprefix("p/run/v1/") in error["message"]
