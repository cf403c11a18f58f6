"""The records of runs over HTTP: a database in the folder of files and batches, and one folder per
unfinished run.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from weft_gateway.runs.database import SharedDatabase

# Ids that this module generates, which are safe as names of folders.
_ID: Final = re.compile(r"run_[0-9a-f]{24}")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
  ended INTEGER NOT NULL, created_s INTEGER NOT NULL, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS runs_of ON runs (tenant, number);
CREATE INDEX IF NOT EXISTS runs_open ON runs (ended, tenant);
"""


class RunStatus(StrEnum):
    """The states of a run. STOPPED: a budget is spent, or the storage is full."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    FAILED = "failed"


_OPEN: Final = (RunStatus.QUEUED, RunStatus.IN_PROGRESS, RunStatus.CANCELLING)


class RunError(msgspec.Struct, frozen=True):
    """Why a run has ended early."""

    code: str
    message: str


class Run(msgspec.Struct):
    """A run. digest: of its workflow. input_file: id of an uploaded file. input_name: the name of
    the rows in messages. budget_tokens, max_errors: None for no limit. batch_ms: how long it waits
    for runs that share its process. times: Unix time by state. rows, completed, failed: numbers of
    rows; `rows` is None until the input is read. tokens: of prompts and answers. output_file: id of
    the result, once the run has ended and has one. group: the run whose folder has the journal,
    once a process has begun. first: its first row in the input of the process.
    """

    id: str
    tenant: str
    digest: str
    created_s: int
    input_file: str = ""
    input_name: str = "rows"
    budget_tokens: int | None = None
    max_errors: int | None = None
    batch_ms: int = 0
    status: RunStatus = RunStatus.QUEUED
    times: dict[str, int] = {}
    rows: int | None = None
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    error: RunError | None = None
    output_file: str = ""
    group: str = ""
    first: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.status not in _OPEN

    @property
    def cancelling(self) -> bool:
        """Whether it was cancelled, and has not ended."""
        return self.status is RunStatus.CANCELLING

    def enter(self, status: RunStatus) -> None:
        """Change the state now."""
        self.status = status
        self.times = {**self.times, status.value: int(time.time())}


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Run).decode


def new_run_id() -> str:
    """Return an id that cannot be guessed."""
    return f"run_{secrets.token_hex(12)}"


def is_run_id(text: str) -> bool:
    """Whether a client's text has the form of an id."""
    return _ID.fullmatch(text) is not None


class RunStore:
    """The database, and the folders of runs. The owner of the folder (`BatchStore.owner`) writes;
    the gateways that share the folder may all read.
    """

    def __init__(self, folder: Path) -> None:
        """Raises sqlite3.Error and OSError."""
        self._folder = folder.resolve() / "runs"
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._db = SharedDatabase(folder, "runs.sqlite3", _SCHEMA).sqlite

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def folder(self, run_id: str) -> Path:
        """Return the folder of a run."""
        return self._folder / run_id

    def save(self, run: Run) -> None:
        """Write a run."""
        self._db.execute(
            "INSERT INTO runs (id, tenant, ended, created_s, record) VALUES (?1, ?2, ?3, ?4, ?5) "
            "ON CONFLICT (id) DO UPDATE SET ended = ?3, record = ?5",
            (run.id, run.tenant, run.ended, run.created_s, _encode(run)),
        )

    def run(self, tenant: str, run_id: str) -> Run | None:
        """Return a tenant's run, None if it has no such run."""
        found = self._read("id = ?1 AND tenant = ?2", run_id, tenant)
        return found[0] if found else None

    def runs(self, tenant: str, limit: int, after: str = "") -> list[Run]:
        """Return a tenant's runs, the newest first, after the run `after`."""
        return self._read(
            "tenant = ?1 AND (?2 = '' OR number < (SELECT number FROM runs WHERE id = ?2)) "
            "ORDER BY number DESC LIMIT ?3",
            *(tenant, after, limit),
        )

    def unfinished(self, tenant: str | None = None) -> list[Run]:
        """Return the runs that have not ended, the oldest first. tenant: None for all."""
        return self._read("NOT ended AND (?1 IS NULL OR tenant = ?1) ORDER BY number", tenant)

    def _read(self, where: str, *values: str | int | None) -> list[Run]:
        rows = self._db.execute(f"SELECT record FROM runs WHERE {where}", values)
        return [_decode(row[0]) for row in rows]

    def forget(self, run_id: str) -> None:
        """Delete the folder of a run."""
        shutil.rmtree(self.folder(run_id), ignore_errors=True)

    def sweep(self, before_s: float) -> None:
        """Delete the ended runs that were created before a time, and the folders of all that have
        ended, or were not created completely.
        """
        self._db.execute("DELETE FROM runs WHERE ended AND created_s < ?", (int(before_s),))
        known = {name for run in self.unfinished() for name in (run.id, run.group)}
        for entry in self._folder.iterdir():
            if entry.name not in known:
                self.forget(entry.name)
