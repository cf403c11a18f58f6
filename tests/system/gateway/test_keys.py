"""The keys file of running gateways: SIGHUP reads it again, and reports show the names."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.stack import free_port
from support.turns import MESSAGES
from support.waiting import DEADLINE_S, RUN_S
from websockets.asyncio.client import connect

pytestmark = [pytest.mark.system, pytest.mark.anyio]

WEFT = (sys.executable, "-m", "weft_gateway.cli")
CALL = {"model": "tiny", "messages": []}


class Process:
    """A `weft serve` process. log: its stderr so far."""

    def __init__(self, process: Any, url: str) -> None:
        self.process = process
        self.url = url
        self.log = ""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for line in self.process.stderr:
            self.log += line.decode()

    async def says(self, text: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.log:
                assert self.process.returncode is None, self.log
                await asyncio.sleep(0.02)

    async def reload(self, said: str) -> None:
        """Send SIGHUP, and wait for what the gateway logs."""
        self.log = ""
        self.process.send_signal(signal.SIGHUP)
        await self.says(said)

    async def ends(self) -> int:
        status = await asyncio.wait_for(self.process.wait(), DEADLINE_S)
        await self._reader
        return int(status)

    async def call(self, key: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(timeout=DEADLINE_S, trust_env=False) as client:
            return await client.post(
                f"{self.url}/v1/chat/completions", json=CALL, headers=headers, **options
            )


@contextlib.asynccontextmanager
async def serving(
    engine: str, *options: str, terminal: int | None = None, **variables: str
) -> AsyncIterator[Process]:
    """Run `weft serve` until its port is open. terminal: its controlling terminal."""

    def control() -> None:
        # The tests themselves may run without a terminal (nohup).
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(*WEFT, "serve", "--replica", engine, "--port", str(port), *options),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
        start_new_session=True,
        preexec_fn=control,
    )
    found = Process(process, f"http://127.0.0.1:{port}")
    try:
        await found.says("serving http")
        yield found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def made(name: str, file: Path) -> str:
    """Make a key with the command, and return it."""
    command = [*WEFT, "keys", "add", name, "--file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("others", "", "reports use this name"),
        ("x", "keys = 3\n", "Input should be a valid dictionary"),
        ("x", '[keys.a]\nkye = "b"\n', "did you mean key?"),
        ("x", 'keys = {a = {key = "k"}}\n', "not valid TOML"),
        ("x", '[keys.a]\nkey = "k"\nclass = "fast"\n', ""),
    ],
)
def test_a_key_is_made_only_if_the_file_is_valid_with_it(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    command = [*WEFT, "keys", "add", name, "--file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    (line,) = done.stderr.splitlines()
    if said:
        assert (done.returncode, done.stdout, file.read_text()) == (2, "", text)
        assert said in line
    else:
        # The classes are those of the gateway, which may be elsewhere.
        assert (done.returncode, done.stdout[:3]) == (0, "sk-")


async def test_keys_come_and_go_while_calls_run(engine: Any, until: Any, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    first = await asyncio.to_thread(made, "first", file)
    text = file.read_text()
    assert first not in text
    go = asyncio.Event()

    async def script(wire: Any, request: Any) -> None:
        await go.wait()
        await wire.plain({"id": "x", "object": "chat.completion"})

    async with (
        engine(script=script) as stub,
        serving(stub.url, "--keys", str(file)) as one,
        serving(stub.url, WEFT_KEYS_FILE=str(file), WEFT_API_KEYS="sk-listed") as two,
    ):
        running = asyncio.create_task(one.call(first))
        await until(lambda: stub.requests)
        second = await asyncio.to_thread(made, "second", file)
        assert (await one.call(second)).status_code == 401
        await one.reload("2 API keys are accepted")
        file.write_text(file.read_text().replace(text, ""))
        await one.reload("1 API keys are accepted")
        assert (await one.call(first)).status_code == 401
        go.set()
        assert (await running).status_code == 200
        assert (await one.call(second)).status_code == 200
        # Each process reads the file at its own signal.
        assert [(await two.call(key)).status_code for key in (first, second)] == [200, 401]
        await two.reload("2 API keys are accepted")
        statuses = [(await two.call(key)).status_code for key in (first, second, "sk-listed")]
        assert statuses == [401, 200, 200]
        # An invalid file changes nothing.
        file.write_text(f'[keys.second]\nkey = "{second}"\nwieght = 2\n')
        await one.reload("the keys are unchanged")
        assert "keys.second.wieght: unknown member; did you mean weight?" in one.log
        assert (await one.call(second)).status_code == 200
        for key in (first, second, "sk-listed"):
            assert key not in one.log + two.log


async def test_limits_and_a_websocket_follow_the_file(
    engine: Any, tmp_path: Path, until: Any
) -> None:
    file = tmp_path / "keys.toml"
    entry = '[keys.a]\nkey = "sk-a"\n'
    other = '[keys.b]\nkey = "sk-b"\n'
    file.write_text(entry + other)
    create = {"type": "response.create", "model": "tiny", "input": "Hello", "stream": True}

    async def script(wire: Any, request: Any) -> None:
        if request.target != "/v1/responses":
            await wire.plain({"id": "x", "object": "chat.completion"})
            return
        done = {"type": "response.completed", "response": {"id": "resp_1", "output": []}}
        await wire.stream(b"event: response.completed\ndata: %b\n\n" % json.dumps(done).encode())

    async with engine(script=script) as stub, serving(stub.url, "--keys", str(file)) as gateway:
        url = gateway.url.replace("http", "ws", 1) + "/v1/responses"
        headers = {"authorization": "Bearer sk-a"}
        async with connect(url, additional_headers=headers, proxy=None) as socket:
            await socket.send(json.dumps(create))
            assert json.loads(await socket.recv())["type"] == "response.completed"
            file.write_text(other + "requests_per_minute = 1\n")
            await gateway.reload("1 API keys are accepted")
            await socket.send(json.dumps(create))
            refused = json.loads(await socket.recv())
        assert (refused["status"], refused["error"]["code"]) == (401, "invalid_api_key")
        assert [(await gateway.call("sk-b")).status_code for _ in range(2)] == [200, 429]


async def test_reports_show_the_names_of_keys(engine: Any, weft: Any, tmp_path: Path) -> None:
    slos, keys = tmp_path / "slo.yaml", tmp_path / "keys.toml"
    slos.write_text("version: 1\ndefault: chat\nclasses: {chat: {deadline: 60s}}\n")
    keys.write_text('[keys.search]\nkey = "sk-old"\n[keys.batch]\nkey = "sk-batch"\n')
    async with engine() as stub, weft(stub, slo_file=str(slos), keys_file=str(keys)) as gateway:

        async def program(name: str, key: str) -> None:
            own = {"authorization": f"Bearer {key}", "x-session-id": name}
            got = await gateway.call(body={"messages": MESSAGES}, headers=own)
            assert got.status_code == 200
            await gateway.client.delete(f"/v1/sessions/{name}", headers=own)

        await program("one", "sk-old")
        await program("two", "sk-batch")
        # A new key of the same team keeps the name and its counts.
        keys.write_text(keys.read_text().replace("sk-old", "sk-new"))
        gateway.parts.reload_keys()
        await program("three", "sk-new")
        headers = {"authorization": "Bearer sk-new"}
        story = (await gateway.client.get("/v1/sessions/three/story", headers=headers)).json()
        assert [one["tenant"] for one in story["receipts"]] == ["search"]
        report = (await gateway.client.get("/weft/slo")).json()
        units = {one["tenant"]: one["units"] for one in report["tenants"]}
        assert units == {"search": 2, "batch": 1}
        assert {(one["class"], one["tenant"]) for one in report["rows"]} == {
            ("chat", "search"),
            ("chat", "batch"),
        }


async def test_a_closed_terminal_stops_the_gateway(engine: Any, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    async with engine() as stub:
        try:
            async with serving(stub.url, terminal=slave) as gateway:
                os.close(slave)
                await gateway.reload("there is no keys file to read")
                os.close(master)
                master = -1
                assert await gateway.ends() == 0
                assert "SIGHUP: accepting no new connections" in gateway.log
        finally:
            if master >= 0:
                os.close(master)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"WEFT_TENANTS_FILE": "tenants.toml"}, "WEFT_TENANTS_FILE was removed: use WEFT_KEYS"),
        ({"WEFT_TUNING": "paper"}, "WEFT_TUNING was removed: the command `weft tune` replaces it"),
        (
            {"WEFT_SLO_FILE": "version: 1\ndefault: a\nclasses: {a: {}}\ntenants: []\n"},
            "tenants: the classes of keys are in the keys file now (WEFT_KEYS_FILE)",
        ),
        (
            {"WEFT_KEYS_FILE": '[tenants.a]\nkey = "k"\n'},
            "tenants: the tables are called [keys.NAME] now, and key_digest is digest",
        ),
    ],
)
def test_a_removed_form_stops_the_start(
    variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    named = {}
    for name, text in variables.items():
        file.write_text(text)
        named[name] = str(file)
    done = subprocess.run(
        [*WEFT, "serve"], capture_output=True, text=True, timeout=RUN_S, env={**os.environ, **named}
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line
