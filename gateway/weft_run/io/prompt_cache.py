"""Answers for later runs: Helium's prompt cache (section 4), in one SQLite file.

Only calls with an identity (`weft_run.language.signature`) are kept, so sampled calls are not.
The identity has the model's name, all messages and all parameters. Several runs may use one file at
the same time.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any, Final

import orjson

from weft_run.io.caller import Answer, Caller
from weft_run.io.errors import JobError
from weft_run.plan.commands import NO_USAGE, Work

log = logging.getLogger(__name__)

# Identifies the file.
_APPLICATION: Final = 0x57_45_46_54
_MOST_BYTES: Final = 1 << 30
# Time for the locks of other runs.
_WAIT_S: Final = 5.0
_PAUSE_S: Final = 0.01
# The low byte of SQLite's extended error codes is the plain code.
_PLAIN_CODE: Final = 0xFF
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answers (
  key TEXT PRIMARY KEY, value BLOB NOT NULL, used_s INTEGER NOT NULL) WITHOUT ROWID;
"""


class PromptCache:
    """The file. most_bytes: of all answers; `close` drops the least recently used ones."""

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        """Open or create the file. Raises JobError if it is no prompt cache or cannot be used."""
        self._path, self._most = path, most_bytes
        self._used: set[str] = set()
        self._works = True
        try:
            if not path.exists():
                # Answers may be private.
                path.touch(mode=0o600)
            self._file = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
            try:
                _prepare(self._file, path)
            except BaseException:
                self._file.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise _unusable(path, error) from None

    def find(self, key: str) -> tuple[str, Any] | None:
        """Return the text and the whole answer of a call, None if it is not known."""
        if not self._works:
            return None
        try:
            found = self._file.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
            answer = None if found is None else _decoded(found[0])
        except (sqlite3.Error, ValueError) as error:
            self._failed(error)
            return None
        if answer is not None:
            self._used.add(key)
        return answer

    def keep(self, key: str, text: str, whole: Any) -> None:
        """Add an answer. The first one of a call stays."""
        if not self._works:
            return
        row = (key, orjson.dumps((text, whole)), int(time()))
        try:
            self._file.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", row)
        except sqlite3.Error as error:
            self._failed(error)

    def close(self) -> None:
        """Record the use of answers, drop the oldest ones beyond the limit, and close the file."""
        try:
            if self._works:
                self._drop()
        except sqlite3.Error as error:
            self._failed(error)
        self._file.close()

    def _drop(self) -> None:
        now_s = int(time())
        self._file.execute("BEGIN IMMEDIATE")
        used = [(now_s, key) for key in self._used]
        self._file.executemany("UPDATE answers SET used_s = ? WHERE key = ?", used)
        # A damaged entry may have no value.
        size_of = "COALESCE(LENGTH(key) + LENGTH(value), 0)"
        sizes = f"SELECT key, {size_of} FROM answers ORDER BY used_s DESC, key"
        total, old = 0, []
        for key, size in self._file.execute(sizes):
            total += size
            if total > self._most:
                old.append((key,))
        self._file.executemany("DELETE FROM answers WHERE key = ?", old)
        self._file.execute("COMMIT")

    def _failed(self, error: Exception) -> None:
        """Continue without the file: a cache may only help."""
        self._works = False
        log.warning("%s: %s; the run continues without the prompt cache", self._path, error)


class CachingCaller:
    """Makes the calls whose answers the cache does not have."""

    def __init__(self, caller: Caller, cache: PromptCache) -> None:
        self._caller, self._cache = caller, cache

    def knows(self, work: Work) -> bool:
        """Whether the cache has the answer of a call, so that it costs no tokens."""
        return work.shared and self._cache.find(work.key) is not None

    async def call(self, work: Work, refused: Callable[[], None]) -> Answer:
        """Return an answer of the cache, or make the call. Raises CallFailed."""
        if not work.shared:
            return await self._caller.call(work, refused)
        known = self._cache.find(work.key)
        if known is not None:
            return Answer(known[0], NO_USAGE, known[1], made=False)
        answer = await self._caller.call(work, refused)
        self._cache.keep(work.key, answer.text, answer.whole)
        return answer

    async def aclose(self) -> None:
        """Close the caller and the cache."""
        try:
            await self._caller.aclose()
        finally:
            self._cache.close()


def check_place(path: Path, files: Iterable[Path]) -> None:
    """Raise JobError if a prompt cache cannot be at `path`, or would be one of a run's files. The
    files need not exist yet.
    """
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable(path, error) from None
    if any(_is_same(path, one) for one in files):
        raise JobError(f"{path}: is a file of this run, not a prompt cache")


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        # One of them does not exist. `Path.resolve` would raise RuntimeError for a loop of links.
        return os.path.realpath(path) == os.path.realpath(other)


def _unusable(path: Path, error: Exception) -> JobError:
    what = getattr(error, "strerror", None) or error
    return JobError(f"{path}: cannot be used as a prompt cache: {what}")


def _prepare(file: sqlite3.Connection, path: Path) -> None:
    """Make a new file a prompt cache. A file that is one is not written to, so that runs that hold
    its write lock delay no other one. Raises JobError for the database of another program.
    """
    if not _is_ready(file):
        # Another run may make the same file now, so only what is read under the lock counts.
        file.execute("BEGIN IMMEDIATE")
        (application,) = file.execute("PRAGMA application_id").fetchone()
        (tables,) = file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION and tables:
            raise JobError(f"{path}: is another SQLite database, not a prompt cache")
        file.execute(f"PRAGMA application_id = {_APPLICATION}")
        file.execute(_SCHEMA)
        file.execute("COMMIT")
    _write_ahead(file)
    # A loss of power may cost the last answers, which a later run then asks for again.
    file.execute("PRAGMA synchronous=OFF")


def _is_ready(file: sqlite3.Connection) -> bool:
    (application,) = file.execute("PRAGMA application_id").fetchone()
    table = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'").fetchone()
    return application == _APPLICATION and table is not None


def _write_ahead(file: sqlite3.Connection) -> None:
    """Switch to WAL. Here SQLite does not wait for a run that writes, unlike elsewhere."""
    until_s = monotonic() + _WAIT_S
    while True:
        try:
            file.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & _PLAIN_CODE == sqlite3.SQLITE_BUSY
            if not is_busy or monotonic() > until_s:
                raise
        sleep(_PAUSE_S)


def _decoded(value: Any) -> tuple[str, Any]:
    """Return the text and the whole answer of an entry. Raises ValueError if it is damaged."""
    match orjson.loads(value):
        case [str(text), None | dict() as whole]:
            return text, whole
    raise ValueError("an answer is damaged")
