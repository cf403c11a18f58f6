"""Plays many streams on a gateway, and reports the memory of its process.

    python tests/support/memory_play.py --minutes 10

512 clients stream calls of 256 programs. A fifth of them leave; others get errors of the engine or
the gateway, do not read, or use WebSockets. The gateway and two engines are separate processes.
The command fails if the memory rises, or if the gateway counts anything after the last call.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from websockets.asyncio.client import connect
from weft_bench.stack.processes import free_port

MOST_RISE: Final = 1.1
MOST_LEFT_MB: Final = 64.0
# The ways of a call, with weights. The engine plays those that it knows.
WAYS: Final = {
    "answered": 60, "left waiting": 10, "left in the stream": 10, "error": 3, "closes": 3,
    "unknown model": 3, "invalid": 2, "too large": 2, "does not read": 3, "socket": 2,
    "left socket": 2,
}  # fmt: skip
_CHUNKS: Final = 20
_PIECE: Final = b'data: {"id": "1", "choices": []}\n\n'


# The engine


async def engine(port: int, seconds: float) -> None:
    """Serve calls whose streams take `seconds`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                found = re.search(rb"content-length: (\d+)", head, re.I)
                body = await reader.readexactly(int(found[1]) if found else 0)
                how = re.search(rb'"user": ?"([^"]*)"', body)
                path = head.split()[1]
                del body
                await answer(writer, path, how[1].decode() if how else "")
        writer.close()

    async def answer(writer: asyncio.StreamWriter, path: bytes, how: str) -> None:
        if not path.startswith(b"/v1/") or path == b"/v1/models":
            card = {"id": "tiny", "object": "model", "owned_by": "vllm", "max_model_len": 4096}
            plain(writer, 404 if path.startswith(b"/weft") else 200, {"data": [card]})
            return
        if how == "error":
            await asyncio.sleep(seconds / 4)
            plain(writer, 500, {"error": {"message": "no", "code": "bad"}})
            return
        if how == "left waiting":
            await asyncio.sleep(seconds)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        filler = b": %b\n\n" % (b"x" * 65_536) if how == "does not read" else b""
        for number in range(_CHUNKS):
            chunk(writer, _PIECE + filler)
            await writer.drain()
            await asyncio.sleep(seconds / _CHUNKS)
            if how == "closes" and number == 2:
                raise ConnectionResetError
        if path == b"/v1/responses":
            response = {"id": "resp_1", "object": "response", "output": []}
            done = json.dumps({"type": "response.completed", "response": response})
            chunk(writer, f"event: response.completed\ndata: {done}\n\n".encode())
        chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def plain(writer: asyncio.StreamWriter, status: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)

    server = await asyncio.start_server(handle, "127.0.0.1", port, limit=1 << 24, backlog=4096)
    await server.serve_forever()


# The clients


@dataclass
class Play:
    """One play against the gateway at `port`. seconds: of a stream. size: of a body, on average."""

    port: int
    streams: int
    programs: int
    seconds: float
    size: int = 150_000
    calls: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    async def run(self, until_s: float) -> None:
        """Play until the monotonic time `until_s`, and wait for the last calls."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.streams):
                group.create_task(self._client(number, until_s))

    async def _client(self, number: int, until_s: float) -> None:
        rng = random.Random(number)
        await asyncio.sleep(rng.random() * self.seconds)
        while time.monotonic() < until_s:
            (way,) = rng.choices([*WAYS], [*WAYS.values()])
            self.calls[way] += 1
            text = "x" * int(self.size * rng.uniform(0.2, 1.8))
            try:
                async with asyncio.timeout(20 * self.seconds):
                    if "socket" in way:
                        await self._socket(way, text)
                    else:
                        await self._call(way, number % self.programs, text, rng)
            except (OSError, asyncio.IncompleteReadError, EOFError):
                self.ends["broken"] += 1
            except TimeoutError:
                self.ends["timeout"] += 1
            except Exception as error:
                self.ends[type(error).__name__] += 1

    async def _call(self, way: str, program: int, text: str, rng: random.Random) -> None:
        model = "no" if way == "unknown model" else "tiny"
        body: dict[str, Any] = {"model": model, "user": way, "stream": True}
        body["messages"] = [{"role": "user", "content": text}]
        raw = json.dumps(body).encode()
        if way == "invalid":
            raw = raw[:-1] + b","
        size = 1 << 30 if way == "too large" else len(raw)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16)
        try:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n"
            writer.write(f"{head}x-weft-program: p{program}\r\n\r\n".encode() + raw)
            await writer.drain()
            del raw, text, body
            if way == "left waiting":
                await asyncio.sleep(self.seconds * rng.random() / 2)
                return
            if way == "does not read":
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                await asyncio.sleep(3 * self.seconds)
                return
            status = (await reader.readuntil(b"\r\n\r\n"))[9:12].decode()
            self.ends[status] += 1
            if way == "left in the stream":
                await asyncio.sleep(self.seconds * rng.random() / 2)
            elif status == "200":
                while data := await reader.read(65_536):
                    if data.endswith(b"0\r\n\r\n"):
                        return
        finally:
            writer.transport.abort()

    async def _socket(self, way: str, text: str) -> None:
        url = f"ws://127.0.0.1:{self.port}/v1/responses"
        async with connect(url, proxy=None, close_timeout=1) as client:
            # The gateway keeps stored answers with their input on purpose, up to a setting.
            about = {"type": "response.create", "model": "tiny", "store": False}
            about |= {"user": way, "input": text}
            await client.send(json.dumps(about))
            if way == "left socket":
                await asyncio.sleep(self.seconds / 4)
                client.transport.abort()
                return
            while json.loads(await client.recv()).get("type") not in (
                "response.completed",
                "error",
            ):
                pass


# The whole


@contextlib.contextmanager
def started(*command: str, **environment: str) -> Iterator[int]:
    """Run a Python process. Yield its id."""
    env = {**os.environ, **environment}
    process = subprocess.Popen([sys.executable, *command], env=env)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1000


async def left(client: httpx.AsyncClient) -> float:
    """Return what the gateway still counts: calls in flight, and bytes of bodies."""
    text = (await client.get("/metrics")).text
    pattern = r"^weft_(?:calls_in_flight|body_bytes)(?:{.*})? (\S+)$"
    return sum(map(float, re.findall(pattern, text, re.M)))


async def play(minutes: float, streams: int, programs: int, seconds: float) -> dict[str, Any]:
    """Play, and return memory in MB before, at each minute and at the end, and counts."""
    engines = [free_port(), free_port()]
    port = free_port()
    urls = ",".join(f"http://127.0.0.1:{each}" for each in engines)
    settings = {"WEFT_REPLICAS": urls, "WEFT_PORT": str(port), "WEFT_SEND_TIMEOUT_S": str(seconds)}
    own = str(Path(__file__))
    with contextlib.ExitStack() as stack:
        for each in engines:
            stack.enter_context(started(own, "--engine", str(each), "--seconds", str(seconds)))
        pid = stack.enter_context(started("-m", "weft_gateway.cli", "serve", **settings))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(httpx.HTTPError):
                        if (await client.get("/health")).json().get("status") == "ok":
                            break
                    await asyncio.sleep(0.2)
            begun_s, before = time.monotonic(), memory_mb(pid)
            played = Play(port, streams, programs, seconds)
            task = asyncio.create_task(played.run(begun_s + 60 * minutes))
            marks: dict[int, float] = {}
            while not task.done():
                await asyncio.wait((task,), timeout=1.0)
                minute = int((time.monotonic() - begun_s) / 60)
                if minute not in marks:
                    marks[minute] = memory_mb(pid)
                    print(minute, marks[minute], dict(played.ends), file=sys.stderr, flush=True)
            await task
            async with asyncio.timeout(60):
                while counted := await left(client):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
            # The gateway closes idle connections to its engines.
            await asyncio.sleep(5.0)
            return {
                "before": before,
                "minutes": marks,
                "end": memory_mb(pid),
                "left": counted,
                "calls": sum(played.calls.values()),
                "ways": dict(played.calls),
                "ends": dict(played.ends),
            }


def main() -> int:
    """Play, or be one of the engines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--programs", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one stream")
    parser.add_argument("--engine", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        asyncio.run(engine(args.engine, args.seconds))
        return 0
    found = asyncio.run(play(args.minutes, args.streams, args.programs, args.seconds))
    print(json.dumps(found, indent=1))
    marks = found["minutes"]
    good = found["end"] <= found["before"] + MOST_LEFT_MB
    if len(marks) > 3:
        # Full minutes: the first is minute 0, and the last one may be cut off.
        good = good and marks[max(marks) - 1] <= MOST_RISE * marks[2]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
