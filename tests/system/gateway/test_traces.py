"""Spans and metrics in a collector: programs, calls of all kinds, their phases, and no contents."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.batches import CHAT, client_of, lines, run
from support.otlp import Collector, collector
from support.turns import CALLS, SYSTEM, USER
from weft_engine.wire import REPORT_COMMENT, REPORT_HEADER, CallReport
from weft_gateway.model import ProgramKey
from weft_gateway.programs.identity import tenant_of

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("sk-one",)
ASKED, SAID = "violin lighthouse", "umbrella parade"
CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def otel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Yield a collector to which the gateways of the test send."""
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found


async def script(wire: Any, request: Any) -> None:
    """Answer with a report, or as the prompt says."""
    body = request.json
    text = body["messages"][-1]["content"] or ""
    if "wrong" in text:
        await wire.plain({"error": {"message": SAID}}, "500 Internal Server Error")
        return
    report = CallReport(
        request.headers["x-weft-call"], service_s=0.5, waiting_s=1e-6, prompt_tokens=1500,
        cached_tokens=512, output_tokens=20,
    ).to_json()  # fmt: skip
    if body.get("stream"):
        await wire.stream(b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % SAID.encode(),
                          end=False)  # fmt: skip
        if "endless" in text:
            await wire.closed()
            return
        await wire.pieces(REPORT_COMMENT + report.encode() + b"\n\ndata: [DONE]\n\n")
    else:
        message = {"role": "assistant", "content": SAID}
        await wire.plain({"id": "x", "choices": [{"message": message}]},
                         headers={REPORT_HEADER: report})  # fmt: skip


def ask(text: str = ASKED, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]} | more


def named(thread: str = "", parent: str = "", **more: str) -> dict[str, str]:
    names = {"x-weft-program": "trip", "x-weft-thread": thread, "x-weft-parent": parent}
    return {"user-agent": "claude-cli/2.1 (external)", **names, **more}


def engines_parent(request: Any) -> tuple[str, str, str]:
    _, trace, span, flags = request.headers["traceparent"].split("-")
    return trace, span, flags


async def test_a_program_and_its_calls(otel: Collector, engine: Any, weft: Any) -> None:
    async with engine(script=script) as stub, weft(stub) as gateway:
        await gateway.call(body=ask(stream=True), headers=named())
        await gateway.call(body=ask(n=2), headers=named("search", "main"))
        await gateway.call(body=ask("wrong"), headers=named())
        unknown = await gateway.call(body=ask(model="nobody"), headers=named())
        assert unknown.status_code == 404
        assert (await gateway.client.delete("/v1/sessions/trip")).status_code == 200
    program = otel.one("invoke_agent claude-cli")
    assert (program.parent, program.kind, program.status) == ("", "internal", "unset")
    assert program.attributes["gen_ai.conversation.id"] == "trip"
    assert program.attributes["weft.calls"] == 3
    assert program.attributes["gen_ai.usage.input_tokens"] == 3000
    streamed, twice, wrong = (span for span in otel.spans() if span.name == "chat tiny")
    refused = otel.one("chat nobody")
    for call in (streamed, twice, wrong, refused):
        assert (call.trace, call.parent, call.kind) == (program.trace, program.id, "client")
        assert program.begun_s - 0.1 < call.begun_s <= call.ended_s <= program.ended_s
        shown = call.attributes
        assert shown["gen_ai.operation.name"] == "chat"
        assert shown["gen_ai.conversation.id"] == "trip"
        assert shown["gen_ai.agent.name"] == "claude-cli"
    for call, request in zip((streamed, twice, wrong), stub.requests, strict=True):
        assert engines_parent(request) == (call.trace, call.id, "01")

    shown = streamed.attributes
    assert (shown["gen_ai.request.model"], shown["gen_ai.request.stream"]) == ("tiny", True)
    tokens = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    assert [shown[f"gen_ai.usage.{name}"] for name in tokens] == [1500, 20, 512]
    assert shown["gen_ai.response.time_to_first_chunk"] > 0
    assert (shown["weft.replica"], shown["weft.outcome"]) == ("r0", "ok")
    assert otel.children(streamed) == ["placed", "queued", "prefill", "decode"]
    phases = [span for span in otel.spans() if span.parent == streamed.id]
    ends = [(phase.begun_s, phase.ended_s) for phase in phases]
    assert [one[1] for one in ends[:1] + ends[2:3]] == pytest.approx(
        [ends[1][0], ends[3][0]], abs=0.01
    )
    assert ends[-1][1] == streamed.ended_s

    assert twice.attributes["gen_ai.request.choice.count"] == 2
    assert (twice.attributes["weft.thread"], twice.links) == ("search", [streamed.id])
    assert otel.children(twice) == ["placed", "queued", "served"]
    assert (wrong.status, wrong.attributes["error.type"]) == ("error", "500")
    assert (refused.status, refused.attributes["error.type"]) == ("error", "model_not_found")
    assert (refused.attributes["weft.outcome"], otel.children(refused)) == ("refused", [])

    metrics = otel.metrics()
    inference = "gen_ai.client.inference"
    durations = {
        (shown.get("gen_ai.request.model"), shown.get("error.type")): count
        for shown, count in metrics[f"{inference}.duration"]
    }
    # No model that a client made up.
    assert durations == {("tiny", None): 2, ("tiny", "500"): 1, (None, "model_not_found"): 1}
    assert [count for _, count in metrics[f"{inference}.time_to_first_chunk"]] == [1]
    used = [metrics[f"{inference}.usage.{name}"][0][1] for name in tokens]
    assert used == [3000, 40, 1024]
    ((shown, count),) = metrics["gen_ai.invoke_agent.duration"]
    assert (shown["gen_ai.agent.name"], count) == ("claude-cli", 1)

    sent = b"".join(body for _, body in otel.bodies)
    for word in f"{ASKED} {SAID} wrong {KEYS[0]}".split():
        assert word.encode() not in sent


async def test_a_clients_trace_is_continued(otel: Collector, engine: Any, weft: Any) -> None:
    _, trace, parent, _ = CLIENT.split("-")
    sent = {"traceparent": CLIENT, "tracestate": "a=b"}
    off = {"traceparent": CLIENT[:-1] + "0"}
    async with engine(script=script) as stub, weft(stub) as gateway:
        await gateway.call(body=ask(), headers=named(**sent))
        await gateway.call(body=ask(), headers=named(**off))
        await gateway.call(body=ask(), headers=named(traceparent="00-0-0-01", tracestate="a=b"))
        await gateway.client.delete("/v1/sessions/trip")
    program = otel.one("invoke_agent claude-cli")
    first, third = (span for span in otel.spans() if span.name == "chat tiny")
    assert (program.trace, program.parent) == (trace, parent)
    assert (first.trace, first.parent, first.links) == (trace, parent, [program.id])
    assert (third.trace, third.parent, third.links) == (trace, program.id, [])
    assert engines_parent(stub.requests[0]) == (trace, first.id, "01")
    assert stub.requests[0].headers["tracestate"] == "a=b"
    # It is not sampled, neither here nor in the engine.
    assert engines_parent(stub.requests[1])[::2] == (trace, "00")
    assert engines_parent(stub.requests[2])[1] == third.id
    assert "tracestate" not in stub.requests[2].headers
    ((_, count),) = otel.metrics()["gen_ai.client.inference.duration"]
    assert count == 3


async def test_gateways_agree_on_the_span_of_a_program(
    otel: Collector, engine: Any, weft: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20sk-collector")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    otel.refusals.append(503)
    key = ProgramKey(tenant_of(KEYS[0]), "trip")
    async with engine(script=script) as stub:
        for _ in range(2):
            async with weft(stub, program_idle_s=0.05) as gateway:
                await gateway.call(body=ask(), headers=named())
                await until(lambda: gateway.parts.table.peek(key) is None, "it has expired")
    first, second = (span for span in otel.spans() if span.name == "invoke_agent claude-cli")
    assert (first.trace, first.id) == (second.trace, second.id)
    assert otel.keys == {"Bearer sk-collector"}
    assert otel.metrics() == {}


async def test_calls_that_get_no_whole_answer(
    otel: Collector, engine: Any, weft: Any, until: Any
) -> None:
    async with (
        engine(script=script) as one,
        engine(script=script) as two,
        weft(one, two) as gateway,
    ):
        body = {"model": "tiny"} | ask("endless", stream=True)
        async with gateway.client.stream("POST", CHAT, json=body, headers=named()) as got:
            async for _ in got.aiter_raw():
                break
        await until(lambda: gateway.in_flight() == 0)
        one.refuse()
        for _ in range(2):
            answer = await gateway.call(body=ask(), headers={"x-weft-program": "other"})
            assert answer.status_code == 200
    left = otel.one("chat tiny", outcome="aborted")
    assert (left.status, left.attributes["error.type"]) == ("error", "client_disconnected")
    again = otel.one("chat tiny", retries=1)
    assert (again.attributes["weft.replica"], again.status) == ("r1", "unset")
    assert again.id in {engines_parent(request)[1] for request in two.requests}


async def test_calls_that_the_gateway_makes(
    otel: Collector, engine: Any, weft: Any, until: Any
) -> None:
    row = {"custom_id": "a", "method": "POST", "url": CHAT, "body": {"model": "tiny"} | ask()}
    prefix = {"model": "tiny", "messages": [SYSTEM, USER, CALLS]}
    async with (
        engine(script=script, canned={"/weft/kv": {}}) as stub,
        weft(stub) as gateway,
        client_of(gateway, KEYS[0]) as client,
    ):
        await run(client, lines(row), endpoint=CHAT)
        await gateway.client.post("/v1/hints/prefill", json=prefix, headers=named())
        await until(lambda: len(stub.requests) == 2)
        await until(lambda: gateway.in_flight() == 0)
    batch, prefill = otel.one("chat tiny"), otel.one("prefill tiny")
    assert otel.children(batch) == ["placed", "queued", "served"]
    assert otel.children(prefill) == ["placed", "queued", "prefill"]
    assert prefill.attributes["gen_ai.conversation.id"] == "trip"
    spans = {engines_parent(request)[1] for request in stub.requests}
    assert spans == {batch.id, prefill.id}
    ((_, count),) = otel.metrics()["gen_ai.client.inference.duration"]
    assert count == 1


async def test_a_join_links_to_the_threads_that_it_joins(
    otel: Collector, engine: Any, weft: Any
) -> None:
    def said(*texts: str) -> list[dict[str, str]]:
        roles = ("user", "assistant")
        return [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]

    found = {
        "Find a flight.": "The gate of the flight to Lisbon is B12; boarding is at ten past nine.",
        "Find a hotel.": "The hotel by the river has two rooms left; breakfast ends at half past.",
    }

    async def answer(wire: Any, request: Any) -> None:
        text = found.get(request.json["messages"][-1]["content"], "Done.")
        await wire.plain({"choices": [{"message": {"role": "assistant", "content": text}}]})

    async with engine(script=answer) as stub, weft(stub) as gateway:
        for text in found:
            await gateway.call(body={"messages": said(text)})
        whole = said("Plan it.", "I shall ask.", "\n".join(found.values()))
        await gateway.call(body={"messages": whole})
    flight, hotel, plan = (span for span in otel.spans() if span.name == "chat tiny")
    assert {flight.id, hotel.id} <= set(plan.links)
    programs = [span for span in otel.spans() if span.name.startswith("invoke_agent")]
    assert {span.parent for span in (flight, hotel, plan)} == {span.id for span in programs}


async def test_a_held_call(otel: Collector, engine: Any, weft: Any, until: Any) -> None:
    over = asyncio.Event()

    async def slow(wire: Any, request: Any) -> None:
        await over.wait()
        await script(wire, request)

    async with engine(script=slow) as stub, weft(stub) as gateway:
        gateway.parts.registry["r0"].slots = 2
        client = asyncio.create_task(gateway.call(body=ask()))
        await until(lambda: len(stub.requests) == 1)
        waits = [
            asyncio.create_task(gateway.call(body=ask(), headers={"x-weft-batch": "1"}))
            for _ in range(2)
        ]
        await until(lambda: len(stub.requests) == 2)
        over.set()
        await asyncio.gather(client, *waits)
    held = [otel.children(span) for span in otel.spans() if span.name == "chat tiny"]
    assert sorted(held)[0] == ["held", "placed", "queued", "served"]


def test_without_the_variable_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys; from weft_gateway.app import Gateway; from weft_gateway.config import load; "
        "print(Gateway(load()).traces, [name for name in sys.modules if 'opentelemetry' in name])"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    cases = ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"})
    for more in cases:
        done = subprocess.run(
            [sys.executable, "-c", code], env=env | more, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "None []"
    missing = "import sys; sys.modules['opentelemetry'] = None; " + code
    done = subprocess.run(
        [sys.executable, "-c", missing], env=env | cases[1] | {"OTEL_SDK_DISABLED": ""},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("None")
    assert 'pip install "weft-gateway[otel]"' in done.stderr
