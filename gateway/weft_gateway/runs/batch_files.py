"""Opens a batch for its run, and closes it: the files around `weft_gateway.runs.batch_active`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import time
from typing import Any, Final

from weft_gateway.calls.client import Disconnect
from weft_gateway.calls.turns import Turns
from weft_gateway.runs.batch_active import Active
from weft_gateway.runs.batch_input import InputReader, read_results
from weft_gateway.runs.batch_lines import id_digest
from weft_gateway.runs.batch_results import (
    CANCELLED,
    Kind,
    Results,
    kind_of,
    line_id,
    tokens_of,
    unsent_line,
)
from weft_gateway.runs.records import NO_TOKENS, Api, Batch, Status, StoredFile, new_id
from weft_gateway.runs.store import Store

# Results that are handled in one turn of the event loop.
_A_TURN: Final = 64
_TURN_BYTES: Final = 1 << 15


@dataclass(slots=True, eq=False)
class BatchFiles:
    """Opens and ends batches. keep_s: lifetime of results, seconds."""

    store: Store
    reader: InputReader
    turns: Turns
    keep_s: float

    async def open(
        self, batch: Batch, serve: Callable[[int, str, Disconnect], Coroutine[Any, Any, int]]
    ) -> Active:
        """Check and index the input; continue after the results that exist. serve: see `Active`.
        Raises InputError and OSError.
        """
        path = self.store.path(batch.input_file)
        done = await self._results(batch)
        index = await self.reader.index(path, batch, done)
        stored = self.store.find(Batch, batch.tenant, batch.id)
        if not batch.output_file:
            batch.output_file, batch.error_file = new_id("file-"), new_id("file-")
        batch.total, batch.model = len(index), index.model
        stop = ""
        if stored is not None and stored.cancelling:
            batch.status, batch.times, stop = stored.status, stored.times, CANCELLED
        else:
            batch.status = Status.IN_PROGRESS
            batch.times.setdefault("in_progress", int(time()))
        errors = None if batch.api is Api.ANTHROPIC else self.store.path(batch.error_file)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            results = Results.open(self.store.path(batch.output_file), errors)
        except BaseException:
            os.close(descriptor)
            raise
        finished = bytearray(b"\1" * len(index))
        for request in index.order:
            finished[request] = 0
        for copies in index.copies.values():
            for request in copies:
                finished[request] = 0
        return Active(batch, index, descriptor, results, finished, serve, stop)

    async def _results(self, batch: Batch) -> frozenset[bytes] | None:
        """Count the results of an earlier run. Returns the digests of their custom ids, None for a
        new batch.
        """
        if not batch.output_file:
            return None
        done: set[bytes] = set()
        batch.completed = batch.failed = batch.unsent = 0
        batch.usage = NO_TOKENS
        for file_id in {batch.output_file, batch.error_file}:
            path = self.store.path(file_id)
            if not path.exists():
                continue
            for number, (custom_id, line, read) in enumerate(read_results(path)):
                if number % _A_TURN == 0:
                    await self.turns.take(batch.tenant, _TURN_BYTES)
                done.add(id_digest(custom_id))
                kind = kind_of(batch.api, custom_id, line)
                if kind is Kind.GOOD:
                    batch.completed += 1
                    batch.usage += tokens_of((read.get("response") or {}).get("body"))
                batch.failed += kind is Kind.FAILED
                batch.unsent += kind is Kind.UNSENT
        return frozenset(done)

    async def end(self, active: Active) -> None:
        """Write the results of requests that were not sent, and make the files available. Raises
        OSError and msgspec.MsgspecError; a repetition writes the rest.
        """
        await self._write_unsent(active)
        await asyncio.to_thread(active.results.sync)
        self._publish(active.batch)

    async def _write_unsent(self, active: Active) -> None:
        batch, number = active.batch, 0
        for request, finished in enumerate(active.finished):
            if finished:
                continue
            if number % _A_TURN == 0:
                await self.turns.take(batch.tenant, _TURN_BYTES)
            number += 1
            name, its_id = active.custom_id(request), line_id(batch.id, request)
            line = unsent_line(batch.api, name, its_id, active.stop)
            active.results.write(line, good=False)
            active.finished[request] = 1
            batch.unsent += 1

    def _publish(self, batch: Batch) -> None:
        """Record the files with results, and remove empty ones."""
        now = int(time())
        hidden = batch.api is Api.ANTHROPIC
        batch.results = []
        for file_id, kind in ((batch.output_file, "output"), (batch.error_file, "error")):
            path = self.store.path(file_id)
            size = path.stat().st_size if path.exists() else 0
            if not size and not (hidden and kind == "output"):
                path.unlink(missing_ok=True)
                continue
            name = f"{batch.id}_{kind}.jsonl"
            expires_s = now + int(min(self.keep_s, batch.keep_s or self.keep_s))
            self.store.add_file(
                StoredFile(
                    file_id, batch.tenant, name, "batch_output", size, now, expires_s, hidden
                )
            )
            batch.results.append(file_id)
