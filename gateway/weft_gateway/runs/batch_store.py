"""The records of files and batches: an SQLite database in WAL mode, in a folder on a local disk.

The folder has the database and one file per stored file, named by its id. Ids are generated here,
and no name of a client becomes part of a path. Several gateways of one machine may use the folder.
One of them is its owner: it alone runs batches, and writes their records after their creation.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from weft_gateway.runs.batch_usage import NO_TOKENS, Tokens
from weft_gateway.runs.database import SharedDatabase

# Ids that this module generates, which are safe as names of files.
_ID: Final = re.compile(r"(?:file-|batch_|msgbatch_)[0-9a-f]{24}")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS files (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
  name TEXT NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created_s INTEGER NOT NULL,
  expires_s INTEGER NOT NULL, hidden INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS files_of ON files (tenant, number);
CREATE TABLE IF NOT EXISTS batches (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
  api TEXT NOT NULL, ended INTEGER NOT NULL, created_s INTEGER NOT NULL, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS batches_of ON batches (tenant, api, number);
CREATE INDEX IF NOT EXISTS batches_open ON batches (ended, tenant);
CREATE TABLE IF NOT EXISTS cancels (id TEXT PRIMARY KEY, at_s INTEGER NOT NULL) WITHOUT ROWID;
"""
_FILE: Final = "id, tenant, name, purpose, bytes, created_s, expires_s, hidden"
_BATCH: Final = "SELECT record, at_s FROM batches LEFT JOIN cancels USING (id) WHERE"
# Rows that are read at once, and a number beyond that of any row.
_PIECE: Final = 64
_LAST: Final = 1 << 62
# Contents without a record that are younger belong to an upload in progress, seconds. Uploads
# write all the time, and take much less.
_UPLOAD_S: Final = 3600.0


class FolderError(Exception):
    """The folder cannot be used. The message names it and the reason."""


class Api(StrEnum):
    """The API that created a batch."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class Status(StrEnum):
    """The states of a batch, as OpenAI names them."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


ENDED: Final = frozenset({Status.FAILED, Status.COMPLETED, Status.EXPIRED, Status.CANCELLED})


class StoredFile(msgspec.Struct, frozen=True):
    """A file. bytes: its size. created_s, expires_s: Unix time. hidden: no route shows it."""

    id: str
    tenant: str
    name: str
    purpose: str
    bytes: int
    created_s: int
    expires_s: int
    hidden: bool = False


class LineError(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error of the input. line: from 1; None if it concerns the whole file."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Batch(msgspec.Struct):
    """A batch. window: as its client wrote it. times: Unix time by state. total, completed, failed:
    numbers of requests. usage: the tokens of the completed ones. unsent: requests that were not
    sent, because the batch was cancelled or has expired. output_file, error_file: ids of the
    results, reserved when the batch begins. results: those of them that exist, once the batch has
    ended. keep_s: the lifetime of the results, as the client wrote it, 0 for the longest one.
    """

    id: str
    tenant: str
    api: Api
    endpoint: str
    input_file: str
    window: str
    created_s: int
    expires_s: int
    status: Status = Status.VALIDATING
    metadata: dict[str, str] | None = None
    model: str = ""
    errors: list[LineError] = []
    times: dict[str, int] = {}
    total: int = 0
    completed: int = 0
    failed: int = 0
    unsent: int = 0
    usage: Tokens = NO_TOKENS
    output_file: str = ""
    error_file: str = ""
    results: list[str] = []
    keep_s: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in ENDED


_encode: Final = msgspec.json.Encoder().encode
_batch: Final = msgspec.json.Decoder(Batch).decode


def new_id(kind: str) -> str:
    """Return an id that cannot be guessed. kind: `file-`, `batch_` or `msgbatch_`."""
    return f"{kind}{secrets.token_hex(12)}"


def is_id(text: str) -> bool:
    """Whether a client's text has the form of an id."""
    return _ID.fullmatch(text) is not None


class BatchStore:
    """The database and the folder."""

    def __init__(self, folder: str | Path) -> None:
        """Create the folder if it is missing. Raises FolderError."""
        self.folder = Path(folder)
        self._lock: IO[str] | None = None
        try:
            (self.folder / "files").mkdir(parents=True, exist_ok=True, mode=0o700)
            self._shared = SharedDatabase(self.folder, "batches.sqlite3", _SCHEMA)
            self._db = self._shared.sqlite
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FolderError(f"the folder {self.folder} (WEFT_DATA_DIR): {reason}") from None

    def close(self) -> None:
        """Close the database, and release the folder."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    @property
    def owner(self) -> bool:
        """Whether this process owns the folder."""
        return self._lock is not None

    def own(self) -> bool:
        """Own the folder unless another process does. The system ends the ownership with the
        process, whatever ends it. Returns `owner`.
        """
        if self._lock is None:
            lock = (self.folder / "lock").open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
            else:
                self._lock = lock
        return self.owner

    def changed(self) -> bool:
        """See `SharedDatabase.changed`."""
        return self._shared.changed()

    # Files

    def path(self, file_id: str) -> Path:
        """Return the place of a file. Raises ValueError for an id of another form."""
        if not is_id(file_id):
            raise ValueError("invalid file id")
        return self.folder / "files" / file_id

    def add_file(self, file: StoredFile) -> None:
        """Record a file whose content is complete."""
        self._db.execute(
            f"INSERT OR REPLACE INTO files ({_FILE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            tuple(getattr(file, name) for name in StoredFile.__struct_fields__),
        )

    def file(self, tenant: str, file_id: str) -> StoredFile | None:
        """Return a tenant's file, None if it has no such file."""
        query = f"SELECT {_FILE} FROM files WHERE id = ? AND tenant = ?"
        row = self._db.execute(query, (file_id, tenant)).fetchone()
        return None if row is None else _stored(row)

    def files(
        self, tenant: str, purpose: str, after: str, *, oldest_first: bool
    ) -> Iterator[StoredFile]:
        """Yield a tenant's files after the file `after` ("": from the first), without hidden ones.
        purpose: "" for all.
        """
        where = "tenant = ? AND NOT hidden AND ? IN ('', purpose)"
        values = (tenant, purpose)
        return map(_stored, self._rows("files", _FILE, where, values, after, up=oldest_first))

    def _rows(
        self, table: str, columns: str, where: str, values: tuple[str, ...], after: str, *, up: bool
    ) -> Iterator[Any]:
        """Yield rows by their numbers, those after the one with the id `after`. They are read in
        pieces, so that a reader may stop, or let others proceed.
        """
        sign, order = (">", "ASC") if up else ("<", "DESC")
        found = self._db.execute(f"SELECT number FROM {table} WHERE id = ?", (after,)).fetchone()
        at = found[0] if found else 0 if up else _LAST
        query = (
            f"SELECT {columns}, number FROM {table} WHERE {where} AND number {sign} ? "
            f"ORDER BY number {order} LIMIT {_PIECE}"
        )
        while rows := self._db.execute(query, (*values, at)).fetchall():
            at = rows[-1][-1]
            for row in rows:
                yield row[:-1]

    def usage(self, tenant: str) -> tuple[int, int]:
        """Return the number and the bytes of a tenant's files."""
        query = "SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE tenant = ?"
        count, size = self._db.execute(query, (tenant,)).fetchone()
        return int(count), int(size)

    def delete_file(self, file_id: str) -> None:
        """Remove a file and its content."""
        self._db.execute("DELETE FROM files WHERE id = ?", (file_id,))
        self.path(file_id).unlink(missing_ok=True)

    def expired_files(self, now_s: float) -> list[str]:
        """Return the ids of files whose time is over."""
        rows = self._db.execute("SELECT id FROM files WHERE expires_s <= ?", (int(now_s),))
        return [row[0] for row in rows]

    def sweep(self) -> None:
        """Delete contents without a record: uploads that a stop interrupted. Keeps the results of
        unfinished batches, and recent contents, which other processes may be writing. For the
        owner.
        """
        before_s = time.time() - _UPLOAD_S
        known = {row[0] for row in self._db.execute("SELECT id FROM files")}
        for batch in self.unfinished():
            known |= {batch.output_file, batch.error_file, batch.input_file}
        for entry in os.scandir(self.folder / "files"):
            if entry.name not in known:
                with suppress(FileNotFoundError):
                    if entry.stat().st_mtime < before_s:
                        os.unlink(entry.path)

    # Batches

    def save(self, batch: Batch) -> None:
        """Write a batch: its creator once, and then the owner."""
        self._db.execute(
            "INSERT INTO batches (id, tenant, api, ended, created_s, record) "
            "VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
            "ON CONFLICT (id) DO UPDATE SET ended = ?4, record = ?6",
            (
                batch.id,
                batch.tenant,
                batch.api.value,
                batch.ended,
                batch.created_s,
                _encode(batch),
            ),
        )

    def batch(self, tenant: str, api: Api, batch_id: str) -> Batch | None:
        """Return a tenant's batch, None if it has no such batch."""
        query = f"{_BATCH} id = ? AND tenant = ? AND api = ?"
        row = self._db.execute(query, (batch_id, tenant, api.value)).fetchone()
        return None if row is None else _read(row)

    def batches(
        self, tenant: str, api: Api, *, after: str = "", before: str = ""
    ) -> Iterator[Batch]:
        """Yield a tenant's batches: those older than `after`, or those newer than `before`, the
        nearest ones first. "" for both: from the newest.
        """
        source = "batches LEFT JOIN cancels USING (id)"
        values = (tenant, api.value)
        rows = self._rows(
            source,
            "record, at_s",
            "tenant = ? AND api = ?",
            values,
            before or after,
            up=bool(before),
        )
        return map(_read, rows)

    def unfinished(self, tenant: str | None = None) -> Iterator[Batch]:
        """Yield the batches that have not ended, the oldest first. tenant: None for all."""
        rows = self._db.execute(
            f"{_BATCH} NOT ended AND (?1 IS NULL OR tenant = ?1) ORDER BY number", (tenant,)
        ).fetchall()
        return (_read(row) for row in rows)

    def cancel(self, batch_id: str, now_s: float) -> None:
        """Ask the owner to cancel a batch. All processes then show it as cancelling."""
        query = "INSERT OR IGNORE INTO cancels (id, at_s) VALUES (?, ?)"
        self._db.execute(query, (batch_id, int(now_s)))

    def delete_batch(self, batch_id: str) -> None:
        """Remove a batch that has ended. Its files stay."""
        self._db.execute("DELETE FROM batches WHERE id = ?", (batch_id,))
        self._db.execute("DELETE FROM cancels WHERE id = ?", (batch_id,))

    def old_batches(self, before_s: float) -> list[Batch]:
        """Return the ended batches that were created before a time."""
        query = f"{_BATCH} ended AND created_s < ?"
        return [_read(row) for row in self._db.execute(query, (int(before_s),))]


def _stored(row: tuple[str, str, str, str, int, int, int, int]) -> StoredFile:
    return StoredFile(*row[:7], hidden=bool(row[7]))


def _read(row: tuple[bytes, int | None]) -> Batch:
    """Return a batch. The owner may not have seen yet that it is cancelled."""
    batch, cancelled_s = _batch(row[0]), row[1]
    if cancelled_s is not None and batch.status in (Status.VALIDATING, Status.IN_PROGRESS):
        batch.status = Status.CANCELLING
        batch.times = {**batch.times, Status.CANCELLING.value: cancelled_s}
    return batch
