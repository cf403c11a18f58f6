"""The journal of a run: an SQLite file that contains finished work, so that a run can be resumed.

A result is durable before the run uses it, so a killed run loses at most the calls in flight. A
tool that must not run twice writes an intent first. An intent without a result has the state
`unknown` after a crash, and the tool does not run again.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from weft_run.plan.commands import Work

VERSION: Final = "3"
# Results that rows share (see `Record.row`).
SHARED: Final = -1
# The column `failed` of an unmet row.
_UNMET: Final = 2
# The key of a record that has only the tokens of an answer without a result.
SPENT: Final = ""
# Files of a journal, by what is added to the name.
ENDINGS: Final = ("-wal", "-shm", "", "-lock")
# Records and bytes of one transaction: a large one would delay the first of its results.
_MOST: Final = 512
_MOST_BYTES: Final = 8 << 20
# Codes of SQLite; the bits above `_PRIMARY` have details.
_PRIMARY: Final = 0xFF
_DISK: Final = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_IOERR: errno.EIO}
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
  row INTEGER NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (row, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rows (
  number INTEGER PRIMARY KEY, failed INTEGER NOT NULL, line BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class JournalError(Exception):
    """The journal cannot be used. The message says why and what to do."""


class JournalLocked(JournalError):
    """Another process uses the journal."""


class DiskError(JournalError):
    """The disk is full or does not work. The same attempt may succeed later."""

    def __init__(self, message: str, number: int) -> None:
        """number: an `errno`."""
        super().__init__(message)
        self.errno = number


class State(IntEnum):
    """INTENT: the tool may have run. DONE: the value is known. FAILED: a tool that must not run
    twice has failed; the value is the failure.
    """

    INTENT = 0
    DONE = 1
    FAILED = 2


class Record(NamedTuple):
    """One result. row: the row that it belongs to, or `SHARED`; results of a row are deleted with
    the row's end. key: the node, or the signature of a shared call. value: JSON. tokens: prompt and
    output tokens that it has cost.
    """

    row: int
    key: str
    state: State
    value: Any = None
    tokens: int = 0


class RowEnd(NamedTuple):
    """The output of a finished row. value: as it appears in the output file. unmet: see
    `commands.Row`.
    """

    number: int
    failed: bool
    value: dict[str, Any]
    unmet: bool = False


class _Entry(NamedTuple):
    """json: the value of `work`."""

    work: Record | RowEnd
    json: bytes
    committed: asyncio.Future[None]


class Journal:
    """The journal of one run. All methods belong to the thread of one event loop; a thread of the
    journal writes.
    """

    def __init__(
        self, path: Path, about: dict[str, str], *, program: str = "", resume: bool = False
    ) -> None:
        """Open or create the file. about: the parts of the run (digests of workflow and input).
        program: of the calls of a new run. Raises JournalError if a new run finds a journal, if a
        resumed run finds none, or if the journal belongs to other work.
        """
        self.path = path
        self._lock = _lock(path)
        try:
            if resume and not path.exists():
                raise JournalError(f"{path}: no journal to resume; run without --resume")
            if not resume and path.exists():
                raise JournalError(
                    f"{path}: a run was interrupted here; continue it with --resume, or delete the "
                    "file"
                )
            with _errors_of(path):
                self._connect(about, program, resume=resume)
        except JournalError:
            if not path.exists():
                _lock_of(path).unlink(missing_ok=True)
            os.close(self._lock)
            raise
        # Bytes of the entries that are not durable yet.
        self.waiting = 0
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer = threading.Thread(target=self._write, name="journal", daemon=True)

    def _connect(self, about: dict[str, str], program: str, *, resume: bool) -> None:
        if resume:
            self._reader, self._connection = self._open(), self._open()
            self._check(about)
            return
        try:
            # Answers may be private. SQLite gives its other files the same mode.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self._reader, self._connection = self._open(), self._open()
            rows = [("version", VERSION), ("program", program), *about.items()]
            self._reader.executemany("INSERT INTO about VALUES (?, ?)", rows)
            self._reader.commit()
        except (sqlite3.Error, OSError):
            # A later attempt must not find a journal without its parts.
            self._delete()
            raise

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        # A commit of an intent must survive a loss of power.
        connection.execute("PRAGMA synchronous=FULL")
        connection.executescript(_SCHEMA)
        return connection

    def _check(self, about: dict[str, str]) -> None:
        found = dict(self._read("SELECT name, value FROM about"))
        if found.get("version") != VERSION:
            raise JournalError(f"{self.path}: written by another version of Weft")
        for name, value in about.items():
            if found.get(name) != value:
                raise JournalError(
                    f"{self.path}: the {name} has changed since this run began; restore it, or "
                    "delete the journal to start again"
                )

    @property
    def program(self) -> str:
        """The program of the run's calls, the same after a resume."""
        found = self._read("SELECT value FROM about WHERE name = 'program'")
        return str(found[0][0]) if found else ""

    def pin(self, name: str, value: str) -> None:
        """Record a choice that a resumed run must repeat. Raises JournalError if it differs."""
        self.recorded(name, value)
        self._check({name: value})

    def recorded(self, name: str, value: str) -> str:
        """Record a value unless the run has one of this name. Returns the recorded one."""
        with _errors_of(self.path):
            self._reader.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, value))
            self._reader.commit()
        ((found,),) = self._read("SELECT value FROM about WHERE name = ?", name)
        return str(found)

    @property
    def begun(self) -> bool:
        """Whether the journal contains any work. A damaged one may contain some."""
        try:
            found = self._read("SELECT 1 FROM results UNION ALL SELECT 1 FROM rows LIMIT 1")
        except JournalError:
            return True
        return bool(found)

    def find(self, row: int, key: str) -> Record | None:
        """Return what is known about a call or tool, None if nothing."""
        query = "SELECT state, value FROM results WHERE row = ? AND key = ?"
        for state, value in self._read(query, row, key):
            with _errors_of(self.path):
                return Record(row, key, State(state), orjson.loads(value))
        return None

    def knows(self, work: Work) -> bool:
        """Whether the end of a call is known, so that it costs no tokens."""
        return self.find(row_of(work), work.key) is not None

    async def write(self, work: Record | RowEnd) -> None:
        """Write, and return when it is durable. Concurrent writes share a transaction. Raises
        JournalError, and TypeError if the value is not JSON.
        """
        json = orjson.dumps(work.value)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._writer.start()
        entry = _Entry(work, json, self._loop.create_future())
        self._queue.put(entry)
        self.waiting += len(json)
        try:
            await entry.committed
        finally:
            self.waiting -= len(json)

    def finished(self, number: int) -> bool:
        """Whether a row has ended."""
        return bool(self._read("SELECT 1 FROM rows WHERE number = ?", number))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the outputs of all finished rows in the order of the input, also if the file was
        deleted meanwhile.
        """
        with _errors_of(self.path):
            for (line,) in self._reader.execute("SELECT line FROM rows ORDER BY number"):
                yield orjson.loads(line)

    def ended(self, rows: range) -> tuple[int, int]:
        """Return the number of finished rows in a range, and of those that failed."""
        query = "SELECT count(*), total(failed = 1) FROM rows WHERE number BETWEEN ? AND ?"
        ((done, failed),) = self._read(query, rows.start, rows.stop - 1)
        return int(done), int(failed)

    def counts(self) -> tuple[int, int, int, int]:
        """Return the finished rows, those of them that failed, the tokens spent, and the unmet
        rows.
        """
        query = "SELECT count(*), total(failed = 1), total(failed = ?) FROM rows"
        ((done, failed, unmet),) = self._read(query, _UNMET)
        found = self._read("SELECT value FROM totals WHERE name = 'tokens'")
        return int(done), int(failed), int(found[0][0]) if found else 0, int(unmet)

    def close(self, *, delete: bool = False) -> None:
        """Commit all entries and close. delete: the work is complete; remove the file."""
        if self._writer.is_alive():
            self._queue.put(None)
            self._writer.join()
        self._connection.close()
        self._reader.close()
        if delete:
            self._delete()
        os.close(self._lock)

    def _delete(self) -> None:
        for ending in ENDINGS:
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)

    def _read(self, query: str, *values: int | str) -> list[Any]:
        """Return the rows of a query. Raises JournalError."""
        with _errors_of(self.path):
            return self._reader.execute(query, values).fetchall()

    def _write(self) -> None:
        """Write entries until None: each transaction takes all entries that wait."""
        ends = False
        while not ends:
            batch: list[_Entry] = []
            size = 0
            while len(batch) < _MOST and size < _MOST_BYTES:
                if batch and self._queue.empty():
                    break
                entry = self._queue.get()
                if entry is None:
                    ends = True
                    break
                batch.append(entry)
                size += len(entry.json)
            if batch:
                self._commit(batch)

    def _commit(self, batch: list[_Entry]) -> None:
        failure: JournalError | None = None
        try:
            with _errors_of(self.path), self._connection:
                for entry in batch:
                    _apply(self._connection, entry.work, entry.json)
        except JournalError as error:
            failure = error
        assert self._loop is not None
        for entry in batch:
            self._loop.call_soon_threadsafe(_settle, entry.committed, failure)


def rows_of(path: Path, rows: range) -> Iterator[dict[str, Any]]:
    """Yield the outputs of the finished rows in a range, numbered from its beginning, in their
    order. The run may continue meanwhile. Raises JournalError.
    """
    query = "SELECT line FROM rows WHERE number BETWEEN ? AND ? ORDER BY number"
    with _errors_of(path), closing(sqlite3.connect(path, timeout=5.0)) as connection:
        for (line,) in connection.execute(query, (rows.start, rows.stop - 1)):
            row = orjson.loads(line)
            yield row | {"row": row["row"] - rows.start}


def row_of(work: Work) -> int:
    """Return the row of the record of a call or tool."""
    return SHARED if work.shared else work.row


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise all errors of a journal's file or contents as JournalError."""
    try:
        yield
    except JournalError:
        raise
    except Exception as error:
        number = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & _PRIMARY
        text = getattr(error, "strerror", None) or str(error)
        if number in _DISK:
            what = "free space or repair the disk, then the run can continue (weft run --resume)"
            raise DiskError(f"{path}: {text}; {what}", _DISK[number]) from None
        if isinstance(error, OSError):
            raise DiskError(f"{path}: {text}", error.errno or errno.EIO) from None
        if number in _DAMAGED or isinstance(error, ValueError):
            what = f"{path}: the journal is damaged ({text}); delete it, and start a new run"
            raise JournalError(what) from None
        # Such as OverflowError: the run would wait for ever for a thread that has died.
        raise JournalError(f"{path}: {text}") from None


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + "-lock")


def _lock(path: Path) -> int:
    """Return the descriptor of a file whose lock keeps other processes off the journal. The
    lock has a separate file: closing a descriptor of the journal would release SQLite's locks.
    """
    try:
        descriptor = os.open(_lock_of(path), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise JournalLocked(f"{path}: another process runs this; wait for its end") from None
    return descriptor


def _apply(connection: sqlite3.Connection, work: Record | RowEnd, json: bytes) -> None:
    if isinstance(work, RowEnd):
        connection.execute(
            "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
            (work.number, _UNMET if work.unmet else work.failed, json),
        )
        connection.execute("DELETE FROM results WHERE row = ?", (work.number,))
        return
    connection.execute(
        "INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)",
        (work.row, work.key, int(work.state), json),
    )
    if work.tokens:
        connection.execute(
            "INSERT INTO totals VALUES ('tokens', ?) "
            "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (work.tokens,),
        )


def _settle(future: asyncio.Future[None], failure: JournalError | None) -> None:
    if not future.done():
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)
