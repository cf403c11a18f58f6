"""Each call reaches at most one engine. The engines are real processes that SIGKILL ends at random
points.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.waiting import DEADLINE_S
from weft_gateway.engine.errors import ConnectFailed

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[2] / "support" / "crashing_engine.py"
POINTS = (
    "head",
    "half_head",
    "after_head",
    "mid_body",
    "asked",
    "mid_answer_head",
    "mid_answer",
    "mid_stream",
)


@dataclass
class Process:
    """A crashing engine. `reads` returns the number of calls of which it has read a byte."""

    process: subprocess.Popen[str]
    log: Path
    url: str

    def reads(self) -> int:
        return self.log.read_text().count("read\n")

    def has_read(self, number: int) -> bool:
        return self.reads() >= number

    def ids(self) -> list[str]:
        return [line[3:] for line in self.log.read_text().splitlines() if line.startswith("id ")]

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)


@contextlib.contextmanager
def crashing(folder: str, name: str, point: str, warm: int = 0) -> Iterator[Process]:
    log = Path(folder) / name
    with subprocess.Popen(
        [sys.executable, "-S", "-E", str(SCRIPT), str(log), point, str(warm)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield Process(process, log, url)
        finally:
            process.kill()


@contextlib.contextmanager
def fleet(points: list[tuple[str, int]]) -> Iterator[list[Process]]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(crashing(folder, f"e{n}", point, warm))
            for n, (point, warm) in enumerate(points)
        ]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    points=st.lists(st.sampled_from(POINTS), min_size=3, max_size=3),
    warm=st.booleans(),
    size=st.sampled_from([10, 5_000, 400_000]),
    stream=st.booleans(),
)
def test_a_call_that_crashes_its_engine_is_not_retried(
    points: list[str], warm: bool, size: int, stream: bool, weft: Callable[..., Any]
) -> None:
    async def example(engines: list[Process]) -> None:
        async with weft(*(engine.url for engine in engines)) as gateway:
            for _ in range(3 if warm else 0):  # Round robin opens a connection to each engine.
                assert (await gateway.call()).status_code == 200
            before = [engine.reads() for engine in engines]
            got = await gateway.call(body={"stream": stream, "user": "x" * size})
            if got.status_code == 200:
                assert '"code":"replica_closed"' in got.text
            else:
                assert (got.status_code, got.json()["error"]["code"]) == (502, "replica_closed")
            reached = [e.reads() - was for e, was in zip(engines, before, strict=True)]
            assert sorted(reached) == [0, 0, 1]
            for engine, count in zip(engines, reached, strict=True):
                if count:
                    await asyncio.to_thread(engine.process.wait, 20)
                assert engine.alive() == (not count)

    with fleet([(point, int(warm)) for point in points]) as engines:
        asyncio.run(example(engines))


async def make_calls(gateway: Any, client: int, number: int, codes: Counter[str]) -> None:
    """Make `number` calls in sequence, each with a unique request id."""
    for n in range(number):
        got = await gateway.call(headers={"x-request-id": f"c{client}-{n}"})
        codes["ok" if got.status_code == 200 else got.json()["error"]["code"]] += 1


@pytest.mark.anyio
async def test_a_killed_engine_loses_only_the_calls_that_it_has_read(weft: Any, until: Any) -> None:
    rng = random.Random(5)
    with fleet([("slow", 0)] * 4) as engines:
        async with weft(*(e.url for e in engines), balancer="least_used") as gateway:
            codes: Counter[str] = Counter()
            clients = [asyncio.create_task(make_calls(gateway, n, 60, codes)) for n in range(16)]
            for engine in engines[:3]:
                await until(partial(engine.has_read, engine.reads() + rng.randrange(10, 40)))
                engine.kill()
            await asyncio.gather(*clients)
        reached = Counter(number for engine in engines for number in engine.ids())
    assert max(reached.values()) == 1
    assert set(codes) <= {"ok", "replica_closed"}
    assert codes["replica_closed"] <= 3 * 16
    assert codes.total() == 16 * 60


@pytest.mark.anyio
async def test_an_engine_that_closes_reused_connections_reads_each_call_once(weft: Any) -> None:
    with fleet([("closes", 0)] * 2) as engines:
        async with weft(*(e.url for e in engines)) as gateway:
            codes: Counter[str] = Counter()
            await asyncio.gather(*(make_calls(gateway, n, 100, codes) for n in range(8)))
        reached = Counter(number for engine in engines for number in engine.ids())
    assert max(reached.values()) == 1
    assert set(codes) <= {"ok", "replica_closed"}
    assert len(reached) >= codes["ok"] > 0


@pytest.mark.anyio
async def test_no_call_fails_after_an_idle_engine_died(weft: Any) -> None:
    with fleet([("never", 0), ("never", 0)]) as (first, second):
        async with weft(first.url, second.url) as gateway:
            for _ in range(2):
                assert (await gateway.call()).status_code == 200
            first.kill()
            for _ in range(4):
                assert (await gateway.call()).status_code == 200
            assert first.reads() == 1


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_a_call_tries_a_limited_number_of_replicas(path: str, engine: Any, weft: Any) -> None:
    unreachable = [f"http://127.0.0.1:{port}" for port in range(2, 9)]
    async with engine() as stub, weft(*unreachable, stub.url, attempts_per_call=3) as gateway:
        for replica in gateway.parts.registry:
            replica.circuit = replica.circuit.checked(True)
        got = await gateway.call(path)
        assert (got.status_code, got.json()["error"]["code"]) == (503, ConnectFailed.code)
        assert sum(not r.circuit.healthy for r in gateway.parts.registry) == 3
        assert stub.requests == []


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_retries_are_a_limited_share_of_the_calls(path: str, engine: Any, weft: Any) -> None:
    async with engine() as stub, weft("http://127.0.0.1:2", stub.url) as gateway:
        dead, calls, codes = gateway.parts.registry["r0"], 0, Counter[int]()
        while codes[503] < 3:
            dead.circuit = dead.circuit.checked(True)
            codes[(await gateway.call(path)).status_code] += 1
            calls += 1
        shown = (await gateway.client.get("/metrics")).text
        (retried,) = re.findall(r'weft_retries_total{result="retried"} (\S+)', shown)
        assert 100 < float(retried) <= 100 + calls / 10
        assert 'weft_retries_total{result="refused"} 3.0' in shown
        assert len(stub.requests) == codes[200]
        assert gateway.in_flight() == 0


@pytest.mark.anyio
async def test_without_a_retry_budget_no_call_is_retried(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft("http://127.0.0.1:2", stub, retry_budget=0) as gateway:
        for _ in range(2):
            dead = gateway.parts.registry["r0"]
            dead.circuit = dead.circuit.checked(True)
            if (await gateway.call()).status_code == 503:
                break
        else:
            pytest.fail("the unreachable replica got no call")


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens"])
async def test_passed_through_requests_are_not_retried(path: str, weft: Any) -> None:
    with fleet([("asked", 0)] * 3) as engines:
        async with weft(*(engine.url for engine in engines)) as gateway:
            got = await gateway.call(path)
            assert got.status_code == 502
            assert "closed the connection" in got.json()["error"]["message"]
        assert sum(engine.reads() for engine in engines) == 1
