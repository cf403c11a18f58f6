"""The journal of calls: its lines, its limits, and no text, over real sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.waiting import until
from weft_engine.wire import REPORT_COMMENT, REPORT_HEADER, CallReport
from weft_gateway.api.journal import JournalLine
from weft_gateway.telemetry import journal

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("sk-one", "sk-two")
WORDS = "violin lighthouse"


async def answering(wire: Any, request: Any) -> None:
    report = CallReport(
        request.headers["x-weft-call"], service_s=0.5, prompt_tokens=1500, cached_tokens=512,
        output_tokens=20,
    ).to_json()  # fmt: skip
    if request.json.get("stream"):
        done = REPORT_COMMENT + report.encode() + b"\n\ndata: [DONE]\n\n"
        await wire.stream(b'data: {"choices":[{"delta":{"content":"umbrella"}}]}\n\n', done)
    else:
        await wire.plain({"answer": "umbrella"}, headers={REPORT_HEADER: report})


async def lines(gateway: Any, **query: int) -> list[dict[str, Any]]:
    answer = await gateway.client.get("/weft/journal", params=query, headers=ADMIN)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-jsonl"
    return [json.loads(line) for line in answer.content.splitlines()]


ADMIN = {"authorization": "Bearer sk-admin"}


def prompt(words: str, size: int = 6000) -> dict[str, Any]:
    content = (words + " ") * (size // len(words))
    return {"messages": [{"role": "user", "content": content}]}


async def test_a_line_has_times_lengths_and_hashes_and_no_text(engine: Any, weft: Any) -> None:
    named = {"x-weft-program": "secret-session", "x-weft-thread": "secret-thread"}
    other = {"authorization": f"Bearer {KEYS[1]}"}
    async with engine(script=answering) as one:
        settings = {"balancer": "locality", "admin_key": "sk-admin"}
        async with weft(one, locality_threshold_tokens=100, **settings) as gateway:
            for number in range(2):
                body = prompt(WORDS) | {"stream": bool(number)}
                answer = await gateway.call(body=body, headers=named)
                assert b"umbrella" in answer.content
            await gateway.call(body=prompt(WORDS, 4200), headers=other)
            refused = await gateway.call(body={"model": "unknown"})
            assert refused.status_code == 404
            found = await lines(gateway)
            raw = (await gateway.client.get("/weft/journal", headers=ADMIN)).content
            assert (await gateway.client.get("/weft/journal")).status_code == 401
    for word in (*WORDS.split(), "umbrella", "secret", *KEYS):
        assert word.encode() not in raw
    first, second, third = map(JournalLine.model_validate, found)
    assert [line.n for line in (second, third)] == [first.n + 1, first.n + 2]
    assert first.program == second.program != third.program
    assert first.thread == second.thread
    assert first.tenant != third.tenant
    assert (first.model, first.endpoint, first.replica) == ("tiny", "chat", "r0")
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (1500, 512, 20)
    assert (first.outcome, first.service_s, first.deadline_s) == ("ok", 0.5, None)
    assert 0 < (first.sent_s or 0) < (first.first_byte_s or 0) < first.total_s
    assert second.arrived_at > first.arrived_at + first.total_s - 0.1
    # The placement reads a prompt when it chooses the home of a program.
    assert (len(first.blocks), len(second.blocks), len(third.blocks)) == (3, 0, 2)
    assert first.block_tokens
    assert (first.continues, second.continues, third.continues) == (None, first.call, None)
    assert second.common_tokens == 1500
    # Tenants do not share a prefix cache.
    assert not set(first.blocks) & set(third.blocks)


async def test_a_reader_goes_on_after_its_last_line_and_the_oldest_are_dropped(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MOST_CALLS", 4)
    monkeypatch.setattr(journal, "_MOST_BLOCKS", 5)
    settings = {"balancer": "locality", "admin_key": "sk-admin", "locality_threshold_tokens": 100}
    async with engine(script=answering) as one, weft(one, **settings) as gateway:
        for _ in range(6):
            await gateway.call()
        found = await lines(gateway)
        assert [line["n"] - found[0]["n"] for line in found] == [0, 1, 2, 3]
        last = found[1]["n"]
        assert await lines(gateway, after=last, limit=1) == found[2:3]
        assert await lines(gateway, after=found[3]["n"]) == []
        # Two prompts of two blocks fit, three do not.
        for number in range(3):
            await gateway.call(body=prompt(f"{number} {WORDS}", 4500))
        assert [len(line["blocks"]) for line in await lines(gateway)] == [2, 2]
        wrong = await gateway.client.get("/weft/journal?limit=1001", headers=ADMIN)
        assert wrong.status_code == 400


async def test_a_call_whose_client_left_is_aborted(engine: Any, weft: Any) -> None:
    async def hangs(wire: Any, request: Any) -> None:
        await wire.closed()

    async with engine(script=hangs) as one, weft(one, admin_key="sk-admin") as gateway:
        call = asyncio.create_task(gateway.call())
        await until(lambda: one.requests, "the call is at the engine")
        call.cancel()
        await until(lambda: not gateway.in_flight(), "the call is closed")
        (line,) = await lines(gateway)
        assert (line["outcome"], line["prompt_tokens"], line["first_byte_s"]) == (
            "aborted", None, None,
        )  # fmt: skip
