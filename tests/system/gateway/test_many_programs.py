"""Many concurrent programs through two gateways on one Redis. Each gateway is killed once.

The test uses real processes: two gateways, two engines without timing and Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.redis_server import RedisServer
from support.stack import free_port, until
from support.waiting import DEADLINE_S
from weft_bench.drive.client import Connection
from weft_bench.stack.gateway import command
from weft_bench.stack.processes import running

pytestmark = pytest.mark.system

PROGRAMS = 2048
ROUNDS = 2
CONNECTIONS = 192
LEASE_S = 2
PROMPT = "Which flights leave on Monday, and which of them has a free seat by the window? " * 2


class Gateway:
    """A `weft serve` process on a free port, which the test can kill and restart."""

    def __init__(self, engines: list[str], redis_url: str, log: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        constants = {
            "call_lease_s": LEASE_S,
            "locality_threshold_tokens": 8,
            # The long timeout keeps a busy machine from looking like an outage. A gateway that is
            # killed in an outage loses unwritten changes.
            "redis_timeout_s": 30,
            # Without lineage, a call without an id is a program of one call. `_open` relies on it.
            "lineage": False,
        }
        self._command = command(constants, engines, self.port)
        self._environment = {**os.environ, "WEFT_REDIS_URL": redis_url}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """Send SIGKILL and wait for the process."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def serves(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self.get("/health").status_code == 200
        return False

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=DEADLINE_S, trust_env=False)

    def table(self) -> Any:
        return self.get("/weft/state").json()["table"]


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[Gateway]]:
    redis = RedisServer(tmp_path)
    made: list[Gateway] = []
    with contextlib.ExitStack() as stack:
        stack.callback(redis.kill)
        engines = []
        for number in range(2):
            port = free_port()
            command = [sys.executable, "-m", "weft_bench.fake", "--port", str(port), "--plugin",
                       "--chunks", "4"]  # fmt: skip
            engines.append(f"http://127.0.0.1:{port}")
            log = tmp_path / f"engine{number}.log"
            stack.enter_context(running(command, f"{engines[-1]}/health", log))
        for number in range(2):
            made.append(Gateway(engines, redis.url, tmp_path / f"gateway{number}.log"))
            stack.callback(made[-1].kill)
        for gateway in made:
            until(gateway.serves, "the gateway does not serve")
        yield made


class RecordingConnection(Connection):
    """A connection that records the replica of its last call."""

    replica = ""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-weft-replica":
            self.replica = value.decode()


class Client:
    """Programs that alternate between the gateways and retry failed calls on the other one."""

    def __init__(self, gateways: list[Gateway]) -> None:
        self.gateways = gateways
        self.answered = 0
        self.tries = dict.fromkeys(range(PROGRAMS), 0)
        self.places: dict[int, set[str]] = {number: set() for number in range(PROGRAMS)}
        self.refused: list[int] = []

    @staticmethod
    def ends(number: int) -> bool:
        """Return whether the program marks its last call as final. Every fourth one does."""
        return number % 4 == 0

    async def play(self) -> None:
        calls = iter([(n, turn) for turn in range(ROUNDS) for n in range(PROGRAMS)])
        await asyncio.gather(*(self._worker(calls) for _ in range(CONNECTIONS)))

    async def _worker(self, calls: Iterator[tuple[int, int]]) -> None:
        connections: dict[int, RecordingConnection] = {}
        for number, turn in calls:
            for attempt in range(1000):
                which = (number + turn + attempt) % 2
                self.tries[number] += 1
                status = await self._call(connections, which, number, turn)
                if status == 200:
                    self.places[number].add(connections[which].replica)
                    self.answered += 1
                    break
                if status:
                    self.refused.append(status)
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("no gateway answers")
        for connection in connections.values():
            connection.close()

    async def _call(
        self, connections: dict[int, RecordingConnection], which: int, number: int, turn: int
    ) -> int:
        try:
            if which not in connections or not connections[which].usable:
                loop = asyncio.get_running_loop()
                port = self.gateways[which].port
                _, connections[which] = await loop.create_connection(
                    RecordingConnection, "127.0.0.1", port
                )
            return await connections[which].ask(_request(number, turn == ROUNDS - 1))
        except OSError:
            return 0


def _request(number: int, last: bool) -> bytes:
    messages = [{"role": "user", "content": f"{number}: {PROMPT}"}]
    body = json.dumps({"model": "mock", "messages": messages}).encode()
    final = "x-dynamo-session-final: true\r\n" if last and Client.ends(number) else ""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: weft\r\ncontent-type: application/json\r\n"
        f"x-dynamo-session-id: run-{number}\r\n{final}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _kill_one_then_the_other(client: Client, gateways: list[Gateway]) -> None:
    for gateway, after in zip(gateways, (0.25, 0.6), strict=True):
        while client.answered < after * ROUNDS * PROGRAMS:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        gateway.kill()
        gateway.start()
        while not await asyncio.to_thread(gateway.serves):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_killed_gateways_lose_no_program_and_leave_no_call_open(
    gateways: list[Gateway],
) -> None:
    client = Client(gateways)

    async def main() -> None:
        async with asyncio.timeout(120):
            await asyncio.gather(client.play(), _kill_one_then_the_other(client, gateways))

    asyncio.run(main())
    assert client.answered == ROUNDS * PROGRAMS
    assert client.refused == []
    assert sum(client.tries.values()) > client.answered, "no call was open at the kills"
    for gateway in gateways:
        until(gateway.serves, "the restarted gateway does not serve")
        # Open calls of a killed gateway are closed after their leases expire.
        until(lambda g=gateway: not _open(g), "a call is still open")
        assert gateway.table()["violations"] == []

    alive = PROGRAMS - PROGRAMS // 4
    for gateway in gateways:
        programs = gateway.table()["programs"]
        assert programs["created"] - programs["ended"] == programs["alive"] == alive
    # If a killed gateway drops the answer of a final call, the retry starts the program again.
    restarted = {n for n in range(PROGRAMS) if client.ends(n) and client.tries[n] > ROUNDS}
    moved = [n for n, places in client.places.items() if len(places) != 1 and n not in restarted]
    assert moved == []
    listed = [_sessions(gateway) for gateway in gateways]
    assert listed[0] == listed[1]
    assert len(listed[0]) == alive
    for name, session in listed[0].items():
        number = int(name.removeprefix("run-"))
        assert session["calls_in_flight"] == 0
        assert ROUNDS <= session["calls"] <= client.tries[number]
        assert session["replicas"] == list(client.places[number])


def _open(gateway: Gateway) -> int:
    # The call refreshes the gateway's counts of calls in flight.
    body = {"model": "mock", "messages": []}
    httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=DEADLINE_S, trust_env=False)
    in_flight: dict[str, int] = gateway.table()["in_flight"]
    return sum(in_flight.values())


def _sessions(gateway: Gateway) -> dict[str, Any]:
    """Return the active sessions, without `known_by`, which differs between gateways."""
    found: dict[str, Any] = {}
    after = ""
    while True:
        page = gateway.get(f"/v1/sessions?limit=1000&after={after}").json()
        for session in page["data"]:
            del session["known_by"]
            if session["status"] != "finished":
                found[session["id"]] = session
        if not page["has_more"]:
            return found
        after = page["last_id"]
