"""Hints of wrong types and tags outside the prompt are reported in the receipt or refused with a
clear error. Calls succeed anyway. `weft` checks the process table.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]

MESSAGES = [
    {"role": "system", "content": "You are an agent. " * 40},
    {"role": "user", "content": "What is the weather in Lyon? " * 10},
    {"role": "assistant", "content": "I will look. " * 10},
    {"role": "tool", "tool_call_id": "c", "content": "Sunny. " * 60},
]


def code(got: Any) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


WRONG: list[Any] = [
    {"a": {"b": [1]}}, [], [[]], "x", "", True, 1e308, -1e308, 10**30, 2**63, 0.5, "\0", "\ud7ff",
]  # fmt: skip
FIELDS = (
    "priority", "reuse_priority", "retain_s", "deadline_s", "ttft_ms", "tpot_ms", "output_tokens",
    "prefill_next", "resumes", "blocks_parent", "tags", "tool_dispatch",
)  # fmt: skip


@pytest.mark.parametrize("value", WRONG, ids=ascii)
async def test_hints_of_wrong_types_are_reported_and_ignored(
    value: Any, engine: Any, weft: Any
) -> None:
    bodies: list[dict[str, Any]] = [
        {"weft": dict.fromkeys(FIELDS, value)},
        {"weft": value},
        {"nvext": value},
        {"nvext": {"agent_hints": value}},
        {"nvext": {"agent_hints": dict.fromkeys(("priority", "osl", "strict_priority"), value)}},
        {"vllm_xargs": {"agentic_context": value}},
        {"vllm_xargs": {"agentic_context": {"priority": value, "deadline_seconds": value}}},
        {"prompt_cache_retention": value},
        {"cache_control": value},
        {"cache_control": {"type": "ephemeral", "ttl": value}},
        {"messages": [{"role": "user", "content": [{"text": "x", "cache_control": value}]}]},
        {"messages": [{"role": value, "content": value, "tool_calls": value}]},
        {"messages": value},
        {"tools": value},
        {"tools": [value]},
    ]
    async with engine() as stub, weft(stub) as gateway:
        for number, body in enumerate(bodies):
            headers = {"x-session-id": "run", "x-request-id": f"r{number}"}
            got = await gateway.call(body=body, headers=headers)
            assert got.status_code == 200, (body, got.text)
            sent = stub.requests[-1].json
            for name in ("messages", "tools"):
                assert sent.get(name) == ({"messages": []} | body).get(name)
            for name, argument in sent["vllm_xargs"].items():
                if name.startswith("weft_"):
                    assert isinstance(argument, (int, float, str, list)), name
            receipt = (await gateway.client.get(f"/v1/receipts/r{number}")).json()
            assert receipt["outcome"] == "ok"
            fates = {hint["hint"]: hint["fate"] for hint in receipt["hints"]}
            if number == 0:
                assert set(fates) >= {f"weft.{name}" for name in FIELDS[:-2]}
            assert all(fate.startswith(("applied", "ignored", "noted")) for fate in fates.values())


async def test_hint_headers_with_wrong_values_are_reported_and_ignored(
    engine: Any, weft: Any
) -> None:
    async with engine() as stub, weft(stub) as gateway:
        names = ("priority", "reuse-priority", "retain-s", "deadline-s", "prefill-next")
        for value in ("", "nan", "inf", "-inf", "1e999", "0x10", "[1]", b"\xff", "1,2", "9" * 5000):
            headers = {f"x-weft-{name}": value for name in names}
            got = await gateway.call(headers={**headers, "x-request-id": "r"})
            assert got.status_code == 200
            json.dumps(stub.requests[-1].json, allow_nan=False)
            hints = (await gateway.client.get("/v1/receipts/r")).json()["hints"]
            assert {hint["hint"] for hint in hints} == set(headers)


@pytest.mark.parametrize("path", ["/v1/hints/tags", "/v1/hints/priority", "/v1/hints/prefill"])
async def test_hint_routes_refuse_invalid_json(path: str, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        for raw, expected in (
            (b'{"session_id": "run", "priority": NaN, "ttl_s": NaN}', "invalid_json"),
            (b'{"session_id": "run", "ttl_s": Infinity}', "invalid_json"),
            (b'{"session_id": ', "invalid_json"),
            (b"[]", "invalid_body"),
        ):
            got = await gateway.client.post(path, content=raw)
            assert code(got) == (400, expected)
        got = await gateway.call(body={}, headers={})
        assert got.status_code == 200
        bad = b'{"model": "tiny", "weft": {"retain_s": NaN}}'
        assert code(await gateway.client.post("/v1/chat/completions", content=bad)) == (
            400,
            "invalid_json",
        )
        assert len(stub.requests) == 1


@pytest.mark.parametrize("value", [*WRONG, None], ids=ascii)
async def test_hint_routes_refuse_wrong_types_with_a_code_and_a_message(
    value: Any, engine: Any, weft: Any
) -> None:
    async with engine(canned={"/weft/kv": {}}) as stub, weft(stub) as gateway:
        await gateway.call(headers={"x-session-id": "run"})
        run = {"session_id": "run"}
        chat = run | {"model": "tiny", "messages": MESSAGES}
        for path, body in (
            ("priority", run | {"priority": value}),
            ("priority", run | {"retain_s": value}),
            ("priority", run | {"priority": 1, "ttl_s": value}),
            ("priority", {"session_id": value, "priority": 1}),
            ("tags", run | {"tags": value}),
            ("tags", run | {"tags": [value]}),
            ("tags", run | {"tags": [{"messages": value, "tag": "USER_QUERY"}]}),
            ("tags", run | {"tags": [{"messages": [value, value], "tag": "USER_QUERY"}]}),
            ("tags", run | {"tags": [{"message": 0, "tag": value}]}),
            ("tags", run | {"tags": [], "ttl_s": value}),
            ("prefill", chat | {"messages": value}),
            ("prefill", chat | {"messages": [value]}),
            ("prefill", chat | {"session_id": value}),
            ("prefill", chat | {"ttl_s": value}),
            ("prefill", chat | {"tools": value}),
        ):
            got = await gateway.client.post(f"/v1/hints/{path}", json=body)
            assert got.status_code in (200, 201, 400, 404), (path, body, got.text)
            if got.status_code >= 400:
                assert got.json()["error"]["code"]
                assert got.json()["error"]["message"]
        assert (await gateway.call(headers={"x-session-id": "run"})).status_code == 200


async def test_overlapping_and_out_of_range_tags_reach_the_engine_in_order(
    engine: Any, weft: Any
) -> None:
    given: list[Any] = [
        {"message": 99, "tag": "TOOL_OUTPUT"},
        {"message": -2, "tag": "TOOL_OUTPUT"},
        {"start": 10, "end": 10, "tag": "TOOL_OUTPUT"},
        {"start": 20, "end": 10, "tag": "TOOL_OUTPUT"},
        {"start": -5, "end": 10, "tag": "TOOL_OUTPUT"},
        {"start": 10, "end": 2**40, "tag": "TOOL_OUTPUT"},
        {"start": 5_000_000, "end": 6_000_000, "tag": "RESPONSE"},
        {"start": 30, "end": 60, "tag": "SYSTEM_PROMPT"},
        {"start": 40, "end": 50, "tag": "RESPONSE"},
        {"start": 0, "end": 1, "tag": "PARTIAL_PREFILL"},
        {"start": "0", "end": 2, "tag": 3},
        {"message": 0, "tag": 99},
        {},
    ]
    async with engine() as stub, weft(stub) as gateway:
        body = {"messages": MESSAGES, "weft": {"tags": given}}
        await gateway.call(body=body, headers={"x-session-id": "run", "x-request-id": "r"})
        sent = stub.requests[0].json
        assert sent["messages"] == MESSAGES
        flat = sent["vllm_xargs"]["weft_tags"]
        ends = flat[::2]
        assert ends == sorted(set(ends))
        assert all(0 < end < 2**31 for end in ends)
        assert set(flat[1::2]) <= {0, 1, 2, 3, 4, 5}
        receipt = (await gateway.client.get("/v1/receipts/r")).json()
        fates = {hint["hint"]: hint["fate"] for hint in receipt["hints"]}
        assert set(fates) == {f"weft.tags[{n}]" for n in range(len(given))}

        def matching(*, starting: str = "", ending: str = "") -> set[int]:
            return {
                number
                for number in range(len(given))
                if (fate := fates[f"weft.tags[{number}]"]).startswith(starting)
                and fate.endswith(ending)
            }

        assert matching(starting="ignored") == {0, 1, 2, 3, 10, 11, 12}
        assert matching(ending="clamped") == {4, 5, 9}


async def test_ten_thousand_tags_reach_the_engine_as_a_short_list(engine: Any, weft: Any) -> None:
    many = [{"start": n, "end": n + 1, "tag": n % 4} for n in range(10_000)]
    async with engine() as stub, weft(stub) as gateway:
        body = {"messages": MESSAGES, "weft": {"tags": many}}
        got = await gateway.call(body=body, headers={"x-request-id": "r"})
        assert got.status_code == 200
        assert len(stub.requests[0].json["vllm_xargs"]["weft_tags"]) < 400
        hints = (await gateway.client.get("/v1/receipts/r")).json()["hints"]
        assert len(hints) <= 200
        assert any("too many" in hint["fate"] for hint in hints)
        refused = await gateway.client.post(
            "/v1/hints/tags", json={"session_id": "run", "tags": many[:1000]}
        )
        assert code(refused) == (400, "invalid_request")
        wide = [{"messages": [0, 4096], "tag": "RESPONSE"} for _ in range(64)]
        accepted = await gateway.client.post(
            "/v1/hints/tags", json={"session_id": "r", "tags": wide}
        )
        assert accepted.status_code == 200
        assert "tags" in (await gateway.client.get("/v1/sessions/r")).json()["told"]
        got = await gateway.call(
            body={"messages": MESSAGES}, headers={"x-session-id": "r", "x-request-id": "s"}
        )
        assert got.status_code == 200
        assert stub.requests[-1].json["vllm_xargs"]["weft_tags"] == [1 << 30, 1]
        hints = (await gateway.client.get("/v1/receipts/s")).json()["hints"]
        assert [hint["fate"] for hint in hints] == ["applied"] * 64
