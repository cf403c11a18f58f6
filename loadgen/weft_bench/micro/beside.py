"""`weft bench batches --beside ROWS`: chats beside many rows, on emulated engines.

The rows run as `weft run`, as a run over HTTP, as a batch, and as plain calls of a client with the
same load. Each way runs once alone and once beside the same chats, in one stack. Prompts of
different runs have nothing in common. All times are in engine seconds.

The speed that the remaining capacity allows is `alone * (1 - chats / capacity)`: the fastest way
alone, and the part of the capacity for chats that the chats leave. This part is measured with
chats only, in batches as large as the engines allow, so it counts the chats at their lowest cost.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import orjson
from prometheus_client.parser import text_string_to_metric_families

from weft_bench.cli.parts import BatchesOptions
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import CHAT, served
from weft_bench.micro.beside_report import (
    CHAT_TOKENS,
    CHAT_WORDS,
    DOCUMENT_WORDS,
    DOCUMENTS,
    ROW_TOKENS,
    WAYS,
    missed,
    table,
)
from weft_bench.report.figures import refuse
from weft_bench.report.page import conclude
from weft_bench.stack.local import StackError, local_stack
from weft_bench.stats import mean, percentile

_KEY: Final = "bench"
_ENDED: Final = ("completed", "failed", "stopped", "expired", "cancelled")
_AHEAD: Final = 1.25
_POLL_S: Final = 0.1
# Chats that measure the capacity, for each slot; chats alone.
_SATURATED: Final = 8
_CHATS_ALONE: Final = 200
_WORDS: Final = ["river", "stone", "garden", "window", "market", "winter", "letter", "bridge"]
_WORKFLOW: Final = """
weft: 1
name: beside
inputs: {document: str, question: str}
ops:
  answer:
    llm: {system: "{{ document }}", user: "{{ question }}", max_tokens: %d, temperature: 1}
outputs: {answer: answer}
"""


@dataclass(slots=True)
class _Chats:
    """Chats of an open loop. found: (sent, latency) of each, machine seconds."""

    found: list[tuple[float, float]] = field(default_factory=list)
    failed: int = 0

    def latencies(self, since_s: float, until_s: float, dilate: float) -> list[float]:
        """Return the latencies of the chats that were sent within a time, engine seconds."""
        return [took / dilate for sent, took in self.found if since_s <= sent <= until_s]


class _Bench:
    def __init__(self, options: BatchesOptions, url: str, client: Client, model: str) -> None:
        self._options = options
        self._url = url
        self._client = client
        self._model = model
        self._rng = Random(options.seed)
        self._window = math.ceil(_AHEAD * options.slots) * options.replicas
        self._folder = Path()

    async def run(self, folder: Path) -> dict[str, dict[str, float]]:
        """Measure everything. Returns the figures by way, and those of the chats alone."""
        options, self._folder = self._options, folder
        capacity = await self._saturated()
        _, chats, late = await self._measured(self._pause, beside=True)
        alone_p95 = percentile(chats, 0.95)
        found = {"chats alone": _figures(chats, late) | {"p95_ratio": 1.0, "capacity": capacity}}
        ways = (self._workflow, self._online, self._batch, self._plain)
        for name, way in zip(WAYS, ways, strict=True):
            alone, _, _ = await self._measured(way, beside=False)
            beside, chats, late = await self._measured(way, beside=True)
            found[name] = _figures(chats, late) | {"alone": alone, "beside": beside}
            found[name]["p95_ratio"] = found[name]["p95"] / alone_p95
        fastest = max(found[name]["alone"] for name in WAYS)
        remaining = fastest * (1 - options.chats * options.replicas / capacity)
        for name in WAYS:
            found[name]["speed"] = found[name]["beside"] / remaining
        return found

    async def _measured(
        self, way: Callable[[], Awaitable[tuple[float, float]]], *, beside: bool
    ) -> tuple[float, list[float], float]:
        """Run rows. Returns rows per second, the latencies of the chats that were sent meanwhile,
        and the part of the engines' time in which they waited for this machine.
        """
        dilate, chats = self._options.dilate, _Chats()
        stop = asyncio.Event()
        playing = asyncio.create_task(self._chats(chats, stop)) if beside else None
        before = await self._device()
        begun_s, took_s = await way()
        after = await self._device()
        stop.set()
        if playing is not None:
            await playing
        if chats.failed:
            raise ValueError(f"{chats.failed} chats have failed")
        latencies = chats.latencies(begun_s, begun_s + took_s, dilate)
        late = (after["late"] - before["late"]) / max(1e-9, after["busy"] - before["busy"])
        return self._options.beside / took_s * dilate, latencies, late

    # The ways to run rows. Each returns when the first row was sent, and the seconds until the end.

    async def _pause(self) -> tuple[float, float]:
        seconds = _CHATS_ALONE / self._options.chats / self._options.replicas
        begun_s = time.monotonic()
        await asyncio.sleep(seconds * self._options.dilate)
        return begun_s, time.monotonic() - begun_s

    async def _workflow(self) -> tuple[float, float]:
        files = [self._folder / name for name in ("beside.yaml", "rows.jsonl", "out.jsonl")]
        files[0].write_text(_WORKFLOW % ROW_TOKENS)
        with files[1].open("wb") as file:
            for document, question in self._rows(self._options.beside):
                row = {"document": document, "question": question}
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        command = [sys.executable, "-m", "weft_gateway.cli", "run", str(files[0]), "--quiet"]
        command += ["--input", str(files[1]), "--output", str(files[2]), "--gateway", self._url]
        command += ["--in-flight", str(self._window)]
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "OPENAI_API_KEY": _KEY}
        )
        # The start of Python is not part of the speed: the run opens its journal after it.
        journal = files[2].with_name(f"{files[2].name}.journal")
        begun_s = time.monotonic()
        while process.returncode is None and not journal.exists():
            begun_s = time.monotonic()
            await asyncio.sleep(_POLL_S)
        if await process.wait():
            raise ValueError("weft run has failed")
        return begun_s, time.monotonic() - begun_s

    async def _online(self) -> tuple[float, float]:
        options = self._options
        rows = [{"document": one, "question": two} for one, two in self._rows(options.beside)]
        async with self._http() as client:
            sent = await client.post(
                "/v1/workflows",
                content=_WORKFLOW % ROW_TOKENS,
                headers={"content-type": "application/yaml"},
            )
            path = f"/v1/workflows/{sent.raise_for_status().json()['id']}/runs"
            new = {"input_file_id": await _uploaded(client, "workflow", rows)}
            # A run over HTTP starts a process, too, which then counts the rows.
            run = await self._finished(client, path, new, "/v1/runs", _counted)
        if run["row_counts"]["completed"] != options.beside:
            raise ValueError(f"the run over HTTP has ended with {run['row_counts']}")
        return run["begun_s"], run["took_s"]

    async def _batch(self) -> tuple[float, float]:
        lines = [
            {"custom_id": f"{number}", "method": "POST", "url": CHAT, "body": self._body(*texts)}
            for number, texts in enumerate(self._rows(self._options.beside))
        ]
        async with self._http() as client:
            file_id = await _uploaded(client, "batch", lines)
            new = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
            batch = await self._finished(client, "/v1/batches", new, "/v1/batches", _created)
        if batch["request_counts"]["completed"] != self._options.beside:
            raise ValueError(f"the batch has ended with {batch['request_counts']}")
        return batch["begun_s"], batch["took_s"]

    def _http(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {_KEY}"}
        return httpx.AsyncClient(base_url=self._url, timeout=120, trust_env=False, headers=headers)

    async def _finished(
        self,
        client: httpx.AsyncClient,
        path: str,
        body: Mapping[str, Any],
        listed: str,
        begun: Callable[[dict[str, Any]], bool],
    ) -> dict[str, Any]:
        """Create a job and wait for its end. begun: whether a state is that of a job which has
        begun. Returns the last state, with `begun_s` and `took_s`.
        """
        begun_s = time.monotonic()
        job = (await client.post(path, json=body)).raise_for_status().json()
        while job["status"] not in _ENDED:
            if not begun(job):
                begun_s = time.monotonic()
            await asyncio.sleep(_POLL_S)
            job = (await client.get(f"{listed}/{job['id']}")).raise_for_status().json()
        return {**job, "begun_s": begun_s, "took_s": time.monotonic() - begun_s}

    async def _plain(self) -> tuple[float, float]:
        begun_s = time.monotonic()
        rows = self._rows(self._options.beside)
        await self._closed_loop([self._body(*texts) for texts in rows])
        return begun_s, time.monotonic() - begun_s

    # Calls

    async def _closed_loop(self, bodies: list[dict[str, Any]]) -> float:
        """Send calls, as many at once as a batch. Returns the seconds until the last was sent."""
        left, begun_s, last_s = iter(bodies), time.monotonic(), 0.0

        async def worker() -> None:
            nonlocal last_s
            for body in left:
                last_s = time.monotonic() - begun_s
                (await self._client.post(CHAT, body)).json()

        await asyncio.gather(*(worker() for _ in range(self._window)))
        return last_s

    async def _saturated(self) -> float:
        """Return the chats per engine second of all engines, if they serve nothing else."""
        count = _SATURATED * self._options.slots * self._options.replicas
        took_s = await self._closed_loop([self._chat() for _ in range(count)])
        return (count - self._window) / took_s * self._options.dilate

    async def _chats(self, chats: _Chats, stop: asyncio.Event) -> None:
        """Send chats at random times until `stop`, and wait for their answers."""
        options = self._options
        rng = Random(options.seed)
        rate = options.chats * options.replicas / options.dilate
        next_s, calls = time.monotonic(), set()
        while not stop.is_set():
            next_s += rng.expovariate(rate)
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            calls.add(asyncio.create_task(self._one(chats, next_s)))
        await asyncio.gather(*calls)

    async def _one(self, chats: _Chats, due_s: float) -> None:
        answer = await self._client.post(CHAT, self._chat())
        if answer.status == 200:
            chats.found.append((due_s, answer.ended_s - due_s))
        else:
            chats.failed += 1

    def _chat(self) -> dict[str, Any]:
        text = self._text(CHAT_WORDS)
        messages = [{"role": "user", "content": text}]
        return {"model": self._model, "messages": messages, "max_tokens": CHAT_TOKENS}

    def _body(self, document: str, question: str) -> dict[str, Any]:
        messages = [
            {"role": "system", "content": document},
            {"role": "user", "content": question},
        ]
        return {
            "model": self._model,
            "messages": messages,
            "max_tokens": ROW_TOKENS,
            "temperature": 1,
        }

    def _rows(self, count: int) -> list[tuple[str, str]]:
        """Return rows in random order: each has one of 20 new documents, and its own question."""
        documents = [self._text(DOCUMENT_WORDS) for _ in range(DOCUMENTS)]
        return [(self._rng.choice(documents), f"{n} {self._text(20)}") for n in range(count)]

    def _text(self, words: int) -> str:
        """Return a text that begins as no other one."""
        return f"{self._rng.random()} {' '.join(self._rng.choices(_WORDS, k=words))}"

    async def _device(self) -> Mapping[str, float]:
        """Return the busy and late engine seconds of all engines."""
        total = {"busy": 0.0, "late": 0.0}
        for replica in (await self._client.get("/health")).json()["replicas"]:
            async with Client(replica["url"]) as engine:
                text = (await engine.get("/metrics")).text
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    for name in total:
                        if sample.name == f"weft_emulated_{name}_seconds_total":
                            total[name] += sample.value
        return total


def _created(_: dict[str, Any]) -> bool:
    return True


def _counted(run: dict[str, Any]) -> bool:
    return run["row_counts"]["total"] is not None


async def _uploaded(client: httpx.AsyncClient, purpose: str, rows: list[dict[str, Any]]) -> str:
    """Upload rows as JSON lines. Returns the id of the file."""
    content = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    form = {"file": ("rows.jsonl", content)}
    answer = await client.post("/v1/files", data={"purpose": purpose}, files=form)
    return str(answer.raise_for_status().json()["id"])


def _figures(chats: list[float], late: float) -> dict[str, float]:
    if not chats:
        raise ValueError("no chat was sent during the run: use more rows")
    return {
        "chats": len(chats), "mean": mean(chats), "p95": percentile(chats, 0.95), "late": late
    }  # fmt: skip


async def measure(options: BatchesOptions, url: str, folder: Path) -> dict[str, dict[str, float]]:
    """Measure at a gateway. Raises OSError and ValueError."""
    async with Client(url, {"Authorization": f"Bearer {_KEY}"}) as client:
        model, _ = await served(client)
        return await _Bench(options, url, client, model).run(folder)


def run(options: BatchesOptions) -> int:
    """Measure and report. Returns the exit status: 1 if a goal is missed, 2 if the bench cannot
    run.
    """
    line = ["--replicas", str(options.replicas), "--emulated", "--preset", options.preset]
    line += ["--dilate", f"{options.dilate:g}", "--", "--max-num-seqs", str(options.slots)]
    try:
        with (
            tempfile.TemporaryDirectory() as name,
            local_stack(line, {"WEFT_DATA_DIR": f"{name}/data"}) as url,
        ):
            found = asyncio.run(measure(options, url, Path(name)))
    except (StackError, OSError, ValueError, httpx.HTTPError) as error:
        return refuse("batches", error)
    capacity = found["chats alone"].pop("capacity")
    names = ("beside", "chats", "preset", "replicas", "slots", "dilate", "seed")
    chosen = [f"--{name} {getattr(options, name)}" for name in names]
    return conclude(
        f"weft bench batches {' '.join(chosen)}",
        f"Chats beside {options.beside:,} rows of a workflow",
        "emulated",
        [table(options, found, capacity)],
        [{"way": name, **values} for name, values in found.items()],
        missed(found),
        options.json_file,
    )
