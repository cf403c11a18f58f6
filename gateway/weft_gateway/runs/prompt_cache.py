"""Answers for later runs: Helium's prompt cache (section 4), in one SQLite file.

Only calls with an identity (`weft_gateway.workflows.signature`) are kept, so sampled calls are not.
The identity has the model's name, all messages and all parameters. Several runs may use one file at
the same time.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any, Final

import orjson

from weft_gateway.runs.caller import Answer, Caller
from weft_gateway.runs.errors import JobError
from weft_gateway.workflows.commands import NO_USAGE, Work

log = logging.getLogger(__name__)

# Identifies the file.
_APPLICATION: Final = 0x57_45_46_54
_MOST_BYTES: Final = 1 << 30
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
            self._file = sqlite3.connect(path, timeout=5.0, isolation_level=None)
            (application,) = self._file.execute("PRAGMA application_id").fetchone()
            (tables,) = self._file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if application != _APPLICATION and tables:
                raise JobError(f"{path}: is another SQLite database, not a prompt cache")
            self._file.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._file.execute("PRAGMA journal_mode=WAL")
            # A loss of power may cost the last answers, which a later run then asks for again.
            self._file.execute("PRAGMA synchronous=OFF")
            self._file.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            what = getattr(error, "strerror", None) or error
            raise JobError(f"{path}: cannot be used as a prompt cache: {what}") from None

    def find(self, key: str) -> tuple[str, Any] | None:
        """Return the text and the whole answer of a call, None if it is not known."""
        if not self._works:
            return None
        try:
            found = self._file.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._failed(error)
            return None
        if found is None:
            return None
        self._used.add(key)
        text, whole = orjson.loads(found[0])
        return text, whole

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
        sizes = "SELECT key, LENGTH(key) + LENGTH(value) FROM answers ORDER BY used_s DESC, key"
        total, old = 0, []
        for key, size in self._file.execute(sizes):
            total += size
            if total > self._most:
                old.append((key,))
        self._file.executemany("DELETE FROM answers WHERE key = ?", old)
        self._file.execute("COMMIT")

    def _failed(self, error: sqlite3.Error) -> None:
        """Continue without the file: a cache may only help."""
        self._works = False
        log.warning("%s: %s; the run continues without the prompt cache", self._path, error)


class CachingCaller:
    """Makes the calls whose answers the cache does not have."""

    def __init__(self, caller: Caller, cache: PromptCache) -> None:
        self._caller, self._cache = caller, cache

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
