"""An engine with arbitrary output: valid answers pass, and the counts stay exact."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools
import pytest
from support.waiting import DEADLINE_S
from weft_engine.wire import REPORT_COMMENT, CallReport

pytestmark = [pytest.mark.system, pytest.mark.anyio]

CALLS = 3_000
AT_ONCE = 8
# Values that no engine sends in a report.
ODD = [
    "NaN", "Infinity", "-1", "1.5", "1e300", "-1e300", "9" * 400, "null", "true", '"7"', "[]",
    "[1,[2]]", '{"a":{"b":1}}', '"\\ud800"', "[" * 600 + "]" * 600,
]  # fmt: skip
FIELDS = [
    "call", "service_s", "waiting_s", "preemptions", "prompt_tokens", "cached_tokens",
    "output_tokens", "queue_path", "policy", "finished", "hints", "recomputed_tokens", "other",
]  # fmt: skip
STATES = [
    b'["weft"]', b"[]", b'"weft"', b"7", b"null", b"{", b"", b'{"weft":[],"engines":7}',
    b'{"weft":{},"engines":[7,{"cache_tokens":1e300},{"cache_tokens":true}]}',
    b'{"weft":{},"engines":[{"cache_tokens":' + b"9" * 300 + b"}]}",
    b"[" * 5000, b'{"weft":' + b"[" * 900 + b"]" * 900 + b"}", b"\xff\xfe",
]  # fmt: skip
MODELS = [
    b"[]", b"7", b"{", b"", b'{"data":7}', b'{"data":{"id":"x"}}', b'{"data":[7,null,[]]}',
    b'{"data":[{"id":7}]}', b'{"data":[{"id":["tiny"]}]}', b'{"data":[{"id":""}]}', b"\xff",
    b'{"data":[{"id":"tiny","max_model_len":NaN}]}',
    b'{"data":[{"id":"tiny","max_model_len":1e999,"owned_by":["vllm"]}]}',
    b'{"data":[{"id":"tiny","x":' + b"[" * 900 + b"]" * 900 + b"}]}",
    b'{"data":[{"id":"' + b"x" * 100_000 + b'"}]}',
]  # fmt: skip


# A report of another call suggests that the answer belongs to that call too. The gateway refuses
# such an answer, because isolation matters most.
OTHER_CALL = CallReport("call-0123456789ab-7").to_json().encode()


def a_report(rng: random.Random, call: str) -> bytes:
    """Return a report that is usually malformed and sometimes valid."""
    good = CallReport(call, 0.5, 0.1, prompt_tokens=7, output_tokens=3).to_json()
    kind = rng.randrange(8)
    if kind == 0:
        return good.encode()
    if kind == 1:
        return rng.choice([b"", b"{", b"[]", b'"x"', b"null", b"7", b"\x80\x81", b"[" * 5000])
    if kind == 2:
        return OTHER_CALL
    fields = {field: json.dumps(value) for field, value in json.loads(good).items()}
    for _ in range(rng.randint(1, 3)):
        fields[rng.choice(FIELDS)] = rng.choice(ODD)
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}").encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Hostile:
    """The engine's script: arbitrary reports, and malformed answers on request."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.wrong: set[float] = set()

    async def __call__(self, wire: Any, request: Any) -> None:
        body, rng = request.json, self.rng
        call = request.headers.get("x-weft-call", "")
        if body["user"] == "bad":
            await self._bad(wire)
            return
        answer = json.dumps({"id": "a", "echo": body["seed"]}).encode()
        if body.get("stream"):
            report = a_report(rng, call).replace(b"\n", b" ")
            frames = [b"data: " + answer + b"\n\n", b"data: [DONE]\n\n"]
            for _ in range(rng.randrange(3)):
                frames.insert(rng.randrange(3), REPORT_COMMENT + report + b"\n\n")
                if report == OTHER_CALL:
                    self.wrong.add(body["seed"])
            await wire.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n" + b"".join(map(chunk, frames)) + b"0\r\n\r\n"
            )
            return
        report = a_report(rng, call)
        if report == OTHER_CALL:
            self.wrong.add(body["seed"])
        surplus = b"surplus" if rng.random() < 0.1 else b""
        await wire.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-weft-report: "
            + report
            + b"\r\ncontent-length: %d\r\n\r\n" % len(answer)
            + answer
            + surplus
        )

    async def _bad(self, wire: Any) -> None:
        heads = [
            b"\x16\x03\x01 garbage\r\n\r\n",
            b"HTTP/1.1 999999 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nxyz",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nx",
            b'HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{"half":',
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {",
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"x-a: y\r\n" * 20_000,
            b"HTTP/1.1 200 OK\r\nx-endless: " + b"y" * 300_000,
            b"HTTP/1.1 103 Early Hints\r\n\r\n" * 4_000,
            b"",
        ]
        await wire.send(self.rng.choice(heads))
        wire.writer.close()


@dataclass
class Got:
    """An answer as the client reads it."""

    body: bytes = b""
    done: bool = False
    keep: bool = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.done = True


class Client:
    """One connection to the gateway. A full HTTP client would take most of the test's time."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, body: dict[str, Any], path: str) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        raw = json.dumps({"model": "tiny", "messages": [], **body}).encode()
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), len(raw), raw)
        )
        got = Got()
        parser = httptools.HttpResponseParser(got)
        async with asyncio.timeout(DEADLINE_S):
            while not got.done:
                data = await reader.read(65536)
                assert data, "the gateway aborted the answer"
                parser.feed_data(data)
        if not parser.should_keep_alive():
            self.close()
        return parser.get_status_code(), got.body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def test_counts_stay_exact_after_thousands_of_calls_to_a_hostile_engine(
    engine: Callable[..., Any], weft: Callable[..., Any]
) -> None:
    rng = random.Random(7)
    hostile = Hostile(8)
    async with engine(script=hostile) as stub, weft(stub, idle_timeout_s=2) as gateway:
        parts = gateway.parts
        closed = 0

        async def make_calls(client: Client, number: int) -> None:
            for _ in range(number):
                bad, stream, seed = rng.random() < 0.05, rng.random() < 0.5, rng.random()
                body = {"user": "bad" if bad else "good", "stream": stream, "seed": seed}
                program = f"/p/run{rng.randrange(20)}" if rng.random() < 0.5 else ""
                status, answer = await client.call(body, f"{program}/v1/chat/completions")
                if bad:
                    assert status in (200, 502, 504), answer
                    assert b'"code":"replica_' in answer
                elif seed in hostile.wrong:
                    assert status == (200 if stream else 502)
                    assert b'"code":"replica_wrong_call"' in answer
                    assert b"[DONE]" not in answer
                elif stream:
                    expected = json.dumps({"id": "a", "echo": seed})
                    assert (status, answer.decode()) == (
                        200,
                        f"data: {expected}\n\ndata: [DONE]\n\n",
                    )
                else:
                    assert (status, json.loads(answer)) == (200, {"id": "a", "echo": seed})

        clients = [Client(gateway.url) for _ in range(AT_ONCE)]
        while closed < CALLS:
            stub.canned = {"/weft/state": rng.choice(STATES), "/v1/models": rng.choice(MODELS)}
            parts.registry.suspicion.set()
            await asyncio.gather(*(make_calls(client, 50) for client in clients))
            closed += 50 * AT_ONCE
            # All calls are closed, so no call is in flight.
            assert gateway.in_flight() == 0
            assert list(await parts.table.check()) == []
            metrics = (await gateway.client.get("/metrics")).text
            counted = [
                float(line.rsplit(" ", 1)[1])
                for line in metrics.splitlines()
                if line.startswith("weft_calls_total")
            ]
            assert sum(counted) == closed
            for path in ("/health", "/v1/models", "/weft/state"):
                assert (await gateway.client.get(path)).status_code == 200
        dropped = [
            float(line.rsplit(" ", 1)[1])
            for line in metrics.splitlines()
            if line.startswith("weft_reports_dropped_total")
        ]
        assert sum(dropped) > CALLS / 2
        for client in clients:
            client.close()
