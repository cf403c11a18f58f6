"""Batches while their database refuses writes, and a cancellation at the begin of a batch."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sqlite3
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from support.batches import CHAT, chat, client_of, content, ended, line, lines, run, upload
from support.waiting import DEADLINE_S, until
from weft_gateway.runs.batch_results import Results

pytestmark = [pytest.mark.system, pytest.mark.anyio]

WINDOW: Any = {"endpoint": CHAT, "completion_window": "24h"}
KEY = {"authorization": "Bearer sk-a"}
FULL = "database or disk is full"


async def test_a_full_disk_ends_no_batch(engine: Any, weft: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("weft_gateway.runs.batch_runner._DISK_PAUSE_S", 0.01)
    monkeypatch.setattr("weft_gateway.runs.batch_runner._SAVE_S", 0.0)
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        await run(client, lines(line(0)))
        store = gateway.parts.batches.store
        save, add_file = store.save, store.add_file
        refused: list[str] = []

        def full(batch: Any) -> None:
            if batch.status.value != "validating" and refused.count("completed") < 3:
                refused.append(batch.status.value)
                raise sqlite3.OperationalError(FULL)
            save(batch)

        def full_once(file: Any) -> None:
            if file.purpose == "batch_output" and "file" not in refused:
                refused.append("file")
                raise sqlite3.OperationalError(FULL)
            add_file(file)

        monkeypatch.setattr(store, "save", full)
        monkeypatch.setattr(store, "add_file", full_once)
        batch = await run(client, lines(*map(line, range(3))))
        assert (batch.status, batch.request_counts.completed) == ("completed", 3)
        assert {"in_progress", "file", "completed"} <= set(refused)
        assert len(await content(client, batch.output_file_id)) == 3


async def test_routes_say_that_the_disk_is_full(engine: Any, weft: Any, monkeypatch: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        file_id = await upload(client, lines(line(0)))
        store = gateway.parts.batches.store

        def full(_: Any) -> None:
            raise sqlite3.OperationalError(FULL)

        monkeypatch.setattr(store, "save", full)
        monkeypatch.setattr(store, "add_file", full)
        files = {"file": ("a.jsonl", b"{}")}
        for answer in (
            await gateway.client.post(
                "/v1/batches", json={"input_file_id": file_id, **WINDOW}, headers=KEY
            ),
            await gateway.client.post(
                "/v1/files", files=files, data={"purpose": "batch"}, headers=KEY
            ),
        ):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "storage_unavailable"
        assert (await client.files.retrieve(file_id)).bytes > 0


async def test_a_refused_batch_of_messages_leaves_no_file(
    engine: Any, weft: Any, until: Any
) -> None:
    """The limit of batches is reached while the requests are uploaded."""
    params = {"model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": "q"}]}
    body = json.dumps({"requests": [{"custom_id": "a", "params": params}]}).encode()
    async with engine(script=chat) as stub, weft(stub) as gateway:
        batches = gateway.parts.batches

        async def upload_slowly() -> Any:
            yield body[:20]
            await until(lambda: list((batches.store.folder / "files").glob("*")))
            batches.quota = replace(batches.quota, batches=0)
            yield body[20:]

        answer = await gateway.client.post("/v1/messages/batches", content=upload_slowly())
        assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
        assert batches.store.usage("public") == (0, 0)
        assert list((batches.store.folder / "files").iterdir()) == []


async def test_a_cancellation_at_the_begin_is_kept(
    engine: Any, weft: Any, monkeypatch: Any
) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        file_id = await upload(client, lines(*map(line, range(3))))
        runner = gateway.parts.batches.runner
        looks, may_look = asyncio.Event(), asyncio.Event()
        look = type(runner.sender).look

        async def slow(sender: Any) -> None:
            looks.set()
            await may_look.wait()
            await look(sender)

        monkeypatch.setattr(type(runner.sender), "look", slow)
        batch = await client.batches.create(input_file_id=file_id, **WINDOW)
        async with asyncio.timeout(DEADLINE_S):
            await looks.wait()
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        may_look.set()
        batch = await ended(client, batch.id)
        assert (batch.status, batch.request_counts.completed) == ("cancelled", 0)


async def test_old_files_are_deleted_again_after_an_error(
    engine: Any, weft: Any, monkeypatch: Any, until: Any
) -> None:
    monkeypatch.setattr("weft_gateway.runs.batches._OWN_EVERY_S", 0.01)
    monkeypatch.setattr("weft_gateway.runs.batches._HOUSEKEEPING_S", 0.01)
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        await upload(client, b"x")
        store = gateway.parts.batches.store
        calls = 0
        expired = store.expired_files

        def expired_files(now_s: float) -> list[str]:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise sqlite3.OperationalError(FULL)
            return expired(now_s)

        monkeypatch.setattr(store, "expired_files", expired_files)
        await until(lambda: calls >= 3)


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "too many open files"), sqlite3.OperationalError("locked")]
)
async def test_an_error_that_passes_does_not_fail_a_batch(
    engine: Any, weft: Any, monkeypatch: Any, error: Exception
) -> None:
    monkeypatch.setattr("weft_gateway.runs.batch_runner._DISK_PAUSE_S", 0.01)
    tries: list[Any] = []
    opened = Results.open

    def open_later(*paths: Any) -> Results:
        tries.append(paths)
        if len(tries) < 3:
            raise error
        return opened(*paths)

    monkeypatch.setattr(Results, "open", open_later)
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, lines(*map(line, range(3))))
        assert (batch.status, batch.request_counts.completed) == ("completed", 3)
        assert len(tries) == 3
        # No attempt has left a file open.
        await until(lambda: not any("/file-" in name for name in _open_files()), "closed files")


def _open_files() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found
