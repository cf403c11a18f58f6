"""Files and batches of tenants: what the HTTP routes do, on top of the store and the runner.

The gateways that use one folder have the same files and batches. One of them, the owner of the
folder, runs all batches. If it ends, another one becomes the owner and continues them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import time
from typing import Final

from weft_gateway.errors import ApiError
from weft_gateway.runs.batch_runner import BatchRunner
from weft_gateway.runs.records import Api, Batch, Run, Status, StoredFile, is_id, new_id
from weft_gateway.runs.store import Store

log = logging.getLogger(__name__)

_HOUSEKEEPING_S: Final = 60.0
_HERE: Final = (
    "Files and batches belong to the gateway that created them, and to those with the same folder."
)
# Between two attempts to become the owner, seconds.
_OWN_EVERY_S: Final = 0.5
_SWEEP_EVERY: Final = 60
_SHOWN: Final = 64
FILE_PURPOSES: Final = (
    "batch", "workflow", "user_data", "assistants", "fine-tune", "vision", "evals",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of one tenant. bytes, files: of its stored files. batches: unfinished ones.
    file_bytes: of one file. keep_s: lifetime of files and ended batches, seconds.
    """

    bytes: int
    files: int
    batches: int
    file_bytes: int
    keep_s: float


@dataclass(slots=True, eq=False)
class Batches:
    """The files and batches of a store. owned: set once this process is the owner of the folder."""

    store: Store
    quota: Quota
    runner: BatchRunner
    owned: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # Uploads in progress, and their bytes, by tenant.
    _uploads: Counter[str] = field(default_factory=Counter, init=False)
    _reserved: Counter[str] = field(default_factory=Counter, init=False)

    # The life of the process

    def start(self) -> None:
        """Open the folder if it exists, and become its owner if it has none."""
        try:
            self.store.own()
        except ApiError as error:
            log.warning("no files and batches: %s", error.message)

    async def run(self) -> None:
        """Become the owner of the folder; then send requests. Runs until cancelled."""
        while not self.owned.is_set():
            with suppress(ApiError):
                if self.store.own():
                    self.owned.set()
                    break
            await asyncio.sleep(_OWN_EVERY_S)
        await self.runner.run()

    async def keep_house(self) -> None:
        """Delete old files, batches and runs as the owner. Runs until cancelled."""
        await self.owned.wait()
        for swept in count():
            if swept % _SWEEP_EVERY == 0:
                self.store.sweep()
            self.delete_old(time())
            await asyncio.sleep(_HOUSEKEEPING_S)

    async def aclose(self) -> None:
        """Stop sending, and release the folder."""
        await self.runner.aclose()
        self.store.close()

    def delete_old(self, now_s: float) -> None:
        """Delete the files, batches and runs whose time is over. Files in use stay."""
        store = self.store
        used = {batch.input_file for batch in store.unfinished(Batch)}
        before_s = now_s - self.quota.keep_s
        for batch in store.old(Batch, before_s):
            self._delete_batch(batch)
        for run in store.old(Run, before_s):
            store.delete(run)
        for file_id in store.expired_files(now_s):
            if file_id not in used:
                with suppress(OSError):
                    store.delete_file(file_id)

    # Files

    @contextmanager
    def uploading(self, tenant: str, size: int | None) -> Iterator[tuple[str, int]]:
        """Reserve storage for the duration of an upload. Yields the id of the new file, and the
        bytes that it may have. size: of the request's body, None if unknown. Raises ApiError 403 or
        503.
        """
        quota = self.quota
        count, used = self.store.usage(tenant)
        if count + self._uploads[tenant] >= quota.files:
            raise _full(f"{quota.files} files")
        most = quota.file_bytes if size is None else min(size, quota.file_bytes)
        left = quota.bytes - used - self._reserved[tenant]
        if most > left:
            raise _full(f"{quota.bytes} bytes")
        self._uploads[tenant] += 1
        self._reserved[tenant] += most
        try:
            yield new_id("file-"), most
        finally:
            self._uploads[tenant] -= 1
            self._reserved[tenant] -= most
            # Forget idle tenants.
            self._uploads, self._reserved = +self._uploads, +self._reserved

    def add_file(
        self,
        tenant: str,
        file_id: str,
        name: str,
        purpose: str,
        expires_s: int | None = None,
        *,
        hidden: bool = False,
    ) -> StoredFile:
        """Record an uploaded file. expires_s: seconds from now, None for the longest time."""
        now, size = int(time()), self.store.path(file_id).stat().st_size
        keep_s = self.quota.keep_s if expires_s is None else min(expires_s, self.quota.keep_s)
        file = StoredFile(file_id, tenant, name, purpose, size, now, now + int(keep_s), hidden)
        self.store.add_file(file)
        return file

    def file(self, tenant: str, file_id: str) -> StoredFile:
        """Return a tenant's file. Raises ApiError 404."""
        found = self.store.file(tenant, file_id) if is_id(file_id) else None
        if found is None or found.hidden:
            raise not_found("file", file_id)
        return found

    def content(self, tenant: str, file_id: str) -> Path:
        """Return the place of a file's content. Raises ApiError 404."""
        return self.store.path(self.file(tenant, file_id).id)

    def delete_file(self, tenant: str, file_id: str) -> None:
        """Delete a file. Raises ApiError 404, and 409 while a batch reads it."""
        file = self.file(tenant, file_id)
        for batch in self.store.unfinished(Batch, tenant):
            if batch.input_file == file.id:
                what = f"Batch {batch.id} reads this file. Cancel the batch first."
                raise ApiError(409, "file_in_use", what)
        self.store.delete_file(file.id)

    # Batches

    def create(
        self,
        tenant: str,
        api: Api,
        endpoint: str,
        input_file: str,
        window: tuple[str, int],
        metadata: dict[str, str] | None = None,
        total: int = 0,
        keep_s: int = 0,
    ) -> Batch:
        """Create a batch, whose input is checked in the background. window: as the client wrote it,
        and seconds. total: requests of the input, 0 if it is not read yet. keep_s: see `Batch`.
        Raises ApiError 400 for an unknown file, 429 at the limit of batches, and 403 if the
        tenant's storage is full.
        """
        store = self.store
        file = store.file(tenant, input_file) if is_id(input_file) else None
        if file is None or (file.hidden and api is Api.OPENAI):
            what = f"No file with id {input_file[:_SHOWN]!r}. {_HERE}"
            raise ApiError(400, "invalid_input_file", what, param="input_file_id")
        if api is Api.OPENAI and file.purpose != "batch":
            what = f"The purpose of the input file must be 'batch', not {file.purpose!r}."
            raise ApiError(400, "invalid_input_file", what, param="input_file_id")
        self.check_open(tenant)
        now = int(time())
        kind = "batch_" if api is Api.OPENAI else "msgbatch_"
        text, seconds = window
        batch = Batch(
            new_id(kind), tenant, now, Status.VALIDATING, api=api, endpoint=endpoint,
            input_file=input_file, window=text, expires_s=now + seconds, metadata=metadata,
            total=total, keep_s=keep_s,
        )  # fmt: skip
        store.save(batch)
        if store.owner:
            self.runner.begin(batch)
        return batch

    def check_open(self, tenant: str) -> None:
        """Raise ApiError if the tenant cannot have another batch now."""
        if len(self.store.unfinished(Batch, tenant)) >= self.quota.batches:
            what = f"At most {self.quota.batches} batches may be unfinished at once."
            raise ApiError(429, "too_many_batches", what)
        self.check_storage(tenant)

    def check_storage(self, tenant: str) -> None:
        """Raise ApiError 403 if the tenant's storage is full."""
        if self.store.usage(tenant)[1] >= self.quota.bytes:
            raise _full(f"{self.quota.bytes} bytes")

    def batch(self, tenant: str, api: Api, batch_id: str) -> Batch:
        """Return a tenant's batch. Raises ApiError 404."""
        found = self.store.find(Batch, tenant, batch_id) if is_id(batch_id) else None
        if found is None or found.api is not api:
            raise not_found("batch", batch_id)
        return self.runner.known(batch_id) or found

    def batches(
        self, tenant: str, api: Api, *, after: str = "", before: str = ""
    ) -> Iterable[Batch]:
        """Return a tenant's batches, see `Store.newest`. Raises ApiError 404 for a position
        that is no batch of the tenant.
        """
        for position in filter(None, (after, before)):
            self.batch(tenant, api, position)
        found = self.store.newest(Batch, tenant, api=api, after=after, before=before)
        known = self.runner.known
        return (known(batch.id) or batch for batch in found)

    def cancel(self, tenant: str, api: Api, batch_id: str) -> Batch:
        """Cancel a batch. Raises ApiError 404. A batch that has ended stays unchanged."""
        batch = self.batch(tenant, api, batch_id)
        if batch.status in (Status.VALIDATING, Status.IN_PROGRESS):
            self.store.cancel(batch.id)
            self.runner.cancel(batch.id)
        return self.batch(tenant, api, batch_id)

    def delete(self, tenant: str, api: Api, batch_id: str) -> None:
        """Delete a batch that has ended, with its hidden files. Raises ApiError 404 or 400."""
        batch = self.batch(tenant, api, batch_id)
        if not batch.ended:
            what = f"Batch {batch.id} is in progress. Cancel it first."
            raise ApiError(400, "batch_in_progress", what)
        self._delete_batch(batch)

    def results(self, tenant: str, api: Api, batch_id: str) -> Path:
        """Return the place of a batch's results. Raises ApiError 404."""
        batch = self.batch(tenant, api, batch_id)
        if not batch.results:
            what = f"Batch {batch.id} has no results: its state is {batch.status.value}."
            raise ApiError(404, "no_results", what)
        return self.store.path(batch.output_file)

    def _delete_batch(self, batch: Batch) -> None:
        store = self.store
        for file_id in (batch.input_file, *batch.results):
            file = store.file(batch.tenant, file_id)
            if file is not None and file.hidden:
                store.delete_file(file.id)
        store.delete(batch)


def _full(what: str) -> ApiError:
    text = f"The limit of {what} per API key is reached. Delete files first."
    return ApiError(403, "storage_limit_reached", text)


def not_found(kind: str, name: str) -> ApiError:
    """The tenant has no file, batch or run of this id."""
    here = _HERE.replace("Files and batches", "Runs") if kind == "run" else _HERE
    text = f"No {kind} with id {name[:_SHOWN]!r}. {here}"
    return ApiError(404, f"{kind}_not_found", text)
