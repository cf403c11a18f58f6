"""`/v1/usage` and the usage reports in the forms of OpenAI and Anthropic."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from support.redis_proxy import Line, RedisProxy
from weft_engine.wire import CallReport

pytestmark = [pytest.mark.system, pytest.mark.anyio]

SAID = [{"role": "user", "content": "hi"}]
KEYS_FILE = '[keys.search]\nkey = "search"\n[keys.other]\nkey = "other"\n'
# Of one call: 10 prompt tokens, 4 of them cached, and 5 of the answer; 6 + 2 + 100 microdollars.
PRICES = '[[price]]\nmodel = "tiny"\ninput = 1\ncached = 0.5\noutput = 20\n'
ONE = {"calls": 1, "failed": 0, "uncounted": 0, "input_tokens": 6, "cached_tokens": 4}
ONE |= {"output_tokens": 5, "engine_s": 0.0, "dollars": 0.000108}


def times(n: int) -> dict[str, Any]:
    return {name: pytest.approx(value * n) for name, value in ONE.items()}


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n".encode()


async def stock(wire: Any, request: Any) -> None:
    """Answer with ten prompt tokens, four of them cached, and five of the answer."""
    path, stream = request.target, request.json.get("stream")
    usage: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    usage |= {"input_tokens_details": {"cached_tokens": 4}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    if path == "/v1/messages":
        usage = {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 5}
        if stream:
            start = {"id": "m", "content": [], "usage": usage | {"output_tokens": 0}}
            delta = {"delta": {"stop_reason": "end_turn"}, "usage": usage}
            await wire.stream(
                event("message_start", message=start),
                event("message_delta", **delta),
                event("message_stop"),
            )
            return
    elif path == "/v1/responses":
        if stream:
            done = {"id": "resp_1", "output": [], "usage": usage}
            await wire.stream(event("response.completed", sequence_number=0, response=done))
            return
    else:
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        usage |= {"prompt_tokens_details": {"cached_tokens": 4}}
        if stream:
            last = json.dumps({"id": "c", "choices": [], "usage": usage}).encode()
            await wire.stream(b'data: {"choices":[]}\n\n', b"data: %b\n\ndata: [DONE]\n\n" % last)
            return
    await wire.plain({"id": "a", "content": [], "output": [], "choices": [], "usage": usage})


def headers(key: str = "search", agent: str = "codex/1.2", program: str = "") -> dict[str, str]:
    found = {"authorization": f"Bearer {key}", "user-agent": agent}
    return found | ({"x-weft-program": program} if program else {})


async def call(gateway: Any, path: str = "/v1/chat/completions", **of: Any) -> httpx.Response:
    body: dict[str, Any] = {"stream": of.pop("stream", False), "max_tokens": 5, "messages": SAID}
    if path == "/v1/responses":
        body = {"stream": body["stream"], "input": "hi", "store": False}
    answer: httpx.Response = await gateway.call(path, body=body, headers=headers(**of))
    return answer


async def usage(gateway: Any, key: str = "root", /, **asked: Any) -> Any:
    """Return the rows of a report, by the values of its columns."""
    got = await gateway.client.get("/v1/usage", params=asked, headers=headers(key))
    assert got.status_code == 200, got.text
    by = asked.get("by", "day").split(",")
    return {tuple([row.pop(name) for name in by]): row for row in got.json()["data"]}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    for name, text in (("keys", KEYS_FILE), ("prices", PRICES)):
        (tmp_path / name).write_text(text)
    files = {f"{name}_file": str(tmp_path / name) for name in ("keys", "prices")}
    # Redis has time to answer on a busy machine.
    return files | {"admin_key": "root", "redis_timeout_s": 20.0}


async def test_streams_and_plain_calls_of_all_apis_count_over_gateways_and_restarts(
    engine: Any, weft: Any, redis: Any, settings: Any
) -> None:
    settings |= {"redis_url": redis.url}
    today = datetime.now(UTC).date()
    async with engine(script=stock, weft=False) as stub:
        async with weft(stub, **settings) as left, weft(stub, **settings) as right:
            for at, gateway in enumerate((left, right)):
                for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
                    for stream in (False, True):
                        program = f"p{at}"
                        answer = await call(gateway, path, stream=stream, program=program)
                        assert answer.status_code == 200
            await call(right, key="other", agent="claude-cli/2.1 (x)")
            assert await usage(left, by="key") == {("other",): times(1), ("search",): times(12)}
        async with weft(stub, **settings) as again:
            assert await usage(again, by="key,agent,model") == {
                ("other", "claude-cli", "tiny"): times(1),
                ("search", "codex", "tiny"): times(12),
            }
            assert await usage(again, by="program", key="search") == {
                ("p0",): times(6), ("p1",): times(6)
            }  # fmt: skip
            # Who sees what.
            assert await usage(again, "search", by="key") == {("search",): times(12)}
            assert await usage(again, "search", by="program", program="p1") == {("p1",): times(6)}
            assert await usage(again, "search", key="other") == {}
            refused = await again.client.get("/v1/usage", headers=headers("unknown"))
            assert refused.status_code == 401
            # Other days.
            assert (await usage(again, by="day")).keys() <= {
                (str(today),), (str(today + timedelta(days=1)),)
            }  # fmt: skip
            past = {"from": str(today - timedelta(days=9)), "to": str(today - timedelta(days=3))}
            assert await usage(again, **past) == {}


async def test_the_clients_of_the_providers_read_it(engine: Any, weft: Any, settings: Any) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub, **settings) as gateway:
        for key, stream in (("other", True), ("search", True), ("search", False)):
            await call(gateway, key=key, stream=stream, program="p")
        since = datetime.now(UTC) - timedelta(days=3)
        client = openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key="root", admin_api_key="root"
        )
        ask: Any = {"start_time": int(since.timestamp()), "api_key_ids": ["search"]}
        first = await client.admin.organization.usage.completions(
            **ask, group_by=["api_key_id", "model"], limit=2
        )
        assert (first.has_more, [bucket.results for bucket in first.data]) == (True, [[], []])
        assert first.next_page
        rest = await client.admin.organization.usage.completions(
            **ask, group_by=["api_key_id", "model"], page=first.next_page
        )
        assert not rest.has_more
        assert rest.data[0].start_time == first.data[1].end_time
        (found,) = [each for bucket in rest.data for each in bucket.results]
        assert (found.api_key_id, found.model, found.num_model_requests) == ("search", "tiny", 2)
        assert (found.input_tokens, found.input_cached_tokens, found.output_tokens) == (20, 8, 10)
        whole = await client.admin.organization.usage.completions(start_time=ask["start_time"])
        (found,) = [each for bucket in whole.data for each in bucket.results]
        assert (found.api_key_id, found.num_model_requests) == (None, 3)
        await client.close()
        # Anthropic's SDK has no usage report of messages; its `get` sends what its users write.
        anthropics = anthropic.AsyncAnthropic(base_url=gateway.url, api_key="root")
        report: Any = await anthropics.get(
            "/v1/organizations/usage_report/messages",
            cast_to=object,
            options={
                "params": {
                    "starting_at": f"{since:%Y-%m-%dT%H:%M:%SZ}",
                    "group_by": ["api_key_id", "program"],
                }
            },
        )
        assert report["data"][0]["starting_at"] == f"{since:%Y-%m-%dT00:00:00Z}"
        assert (report["has_more"], report["next_page"]) == (False, None)
        results = [each for bucket in report["data"] for each in bucket["results"]]
        assert [each["api_key_id"] for each in results] == ["other", "search"]
        assert results[1] == {
            "uncached_input_tokens": 12,
            "cache_read_input_tokens": 8,
            "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
            "output_tokens": 10,
            "server_tool_use": {"web_search_requests": 0},
            "api_key_id": "search",
            "model": None,
            "workspace_id": None,
            "service_tier": None,
            "context_window": None,
            "program": "p",
        }
        await anthropics.close()


async def test_failed_and_aborted_calls_count(
    engine: Any, weft: Any, settings: Any, until: Any
) -> None:
    async def script(wire: Any, request: Any) -> None:
        if request.json["max_tokens"] == 5:
            await wire.plain({"error": {"message": "no"}}, "500 Internal Server Error")
            return
        if request.json["max_tokens"] == 6:
            # A client that does not ask for usage, at an engine without the plugin.
            await wire.stream(b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
            return
        call_id = request.headers["x-weft-call"]
        used = CallReport(
            call=call_id, service_s=0.5, waiting_s=0.0, prompt_tokens=10, cached_tokens=4,
            output_tokens=2,
        )  # fmt: skip
        stub.canned[f"/weft/calls/{call_id}"] = used.to_json().encode()
        await wire.stream(b'data: {"choices":[]}\n\n', end=False)
        await wire.closed()

    async with engine(script=script) as stub, weft(stub, **settings) as gateway:
        assert (await call(gateway)).status_code == 500
        assert await usage(gateway, by="agent") == {
            ("codex",): dict.fromkeys(ONE, 0) | {"calls": 1, "failed": 1}
        }
        body = {"messages": SAID, "stream": True, "max_tokens": 6}
        await gateway.call(body=body, headers=headers(agent="curl"))
        assert (await usage(gateway, by="agent"))[("curl",)]["uncounted"] == 1
        body |= {"model": "tiny", "max_tokens": 9}
        async with gateway.client.stream(
            "POST", "/v1/chat/completions", json=body, headers=headers(agent="aider/1")
        ) as answer:
            await anext(answer.aiter_lines())
        await until(lambda: gateway.in_flight() == 0)
        found = (await usage(gateway, by="agent"))[("aider",)]
        assert found == ONE | {"output_tokens": 2, "engine_s": 0.5, "dollars": 0.000048}


async def test_csv_has_the_same_rows_and_no_formulas(engine: Any, weft: Any, settings: Any) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub, **settings) as gateway:
        for program in ("=1+2", 'a,"b"'):
            await call(gateway, program=program)
        asked = {"by": "program,key", "format": "csv"}
        got = await gateway.client.get("/v1/usage", params=asked, headers=headers("root"))
        assert got.headers["content-type"].startswith("text/csv")
        rows = [*csv.reader(io.StringIO(got.text))]
        assert rows[0] == ["program", "key", *ONE]
        assert rows[1] == ["'=1+2", "search", "1", "0", "0", "6", "4", "5", "0.0", "0.000108000"]
        assert rows[2][0] == 'a,"b"'


async def test_calls_count_that_end_while_redis_is_away(
    engine: Any, weft: Any, redis: Any, settings: Any, until: Any
) -> None:
    async with RedisProxy(redis.port) as proxy, engine(script=stock, weft=False) as stub:
        ways = {"here": proxy.url, "there": redis.url}
        async with (
            weft(stub, **settings, redis_url=ways["here"]) as gateway,
            weft(stub, **settings, redis_url=ways["there"]) as other,
        ):
            await call(gateway)
            proxy.set(Line.CUT)
            for stream in (False, True):
                assert (await call(gateway, stream=stream)).status_code == 200
            await call(other)
            away = await gateway.client.get("/v1/usage", headers=headers("root"))
            assert (away.status_code, away.json()["error"]["code"]) == (503, "table_unavailable")
            proxy.set(Line.OPEN)
            await until(lambda: not gateway.parts.table.local)
            assert await usage(other, by="key") == {("search",): times(4)}


@pytest.mark.parametrize("brackets", ["", "[]"])
async def test_providers_lists_filter_with_brackets_and_without(
    brackets: str, engine: Any, weft: Any, settings: Any
) -> None:
    async with engine(script=stock, weft=False) as stub, weft(stub, **settings) as gateway:
        await call(gateway, key="search")
        await call(gateway, key="other")
        for asked, calls in (({"api_key_ids": "search"}, 1), ({"models": "none"}, 0)):
            params = {f"{name}{brackets}": value for name, value in asked.items()}
            params |= {"start_time": int(datetime.now(UTC).timestamp())}
            got = await gateway.client.get(
                "/v1/organization/usage/completions", params=params, headers=headers("root")
            )
            rows = [row for day in got.json()["data"] for row in day["results"]]
            assert sum([row["num_model_requests"] for row in rows]) == calls


@pytest.mark.parametrize(
    ("path", "params", "param"),
    [
        ("usage", {"by": "user"}, "by"),
        ("usage", {"from": "today"}, "from"),
        ("usage", {"from": "0001-01-01", "to": "9999-12-31"}, "from"),
        ("usage", {"from": "2026-11-20", "to": "2026-11-19"}, "from"),
        ("usage", {"format": "xml"}, "format"),
        ("organization/usage/completions", {}, "start_time"),
        ("organization/usage/completions", {"start_time": 10**18}, "start_time"),
        ("organization/usage/completions", {"start_time": 1, "bucket_width": "1h"}, "bucket_width"),
        ("organization/usage/completions", {"start_time": 1, "limit": 32}, "limit"),
        ("organizations/usage_report/messages", {"starting_at": "now"}, "starting_at"),
    ],
)
async def test_a_wrong_parameter_is_named(
    path: str, params: Any, param: str, engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        got = await gateway.client.get(f"/v1/{path}", params=params)
        assert (got.status_code, got.json()["error"]["param"]) == (400, param)
