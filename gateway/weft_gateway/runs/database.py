"""The SQLite databases in the folder that gateways of a machine share."""

from __future__ import annotations

import fcntl
import sqlite3
from pathlib import Path


class SharedDatabase:
    """A database that several processes use."""

    def __init__(self, folder: Path, name: str, schema: str) -> None:
        """Open or create it. Raises OSError and sqlite3.Error."""
        self._seen = -1
        # Two processes that create a database at once would refuse each other.
        with (folder / "opening").open("a") as opening:
            fcntl.flock(opening, fcntl.LOCK_EX)
            self.sqlite = sqlite3.connect(folder / name, isolation_level=None)
            # A commit survives the end of the process. After a power loss, the last ones may be
            # missing, and the results on disk count.
            self.sqlite.execute("PRAGMA journal_mode=WAL")
            self.sqlite.execute("PRAGMA synchronous=NORMAL")
            self.sqlite.executescript(schema)

    def changed(self) -> bool:
        """Whether another process has changed the database since the last call. The first call
        returns True.
        """
        seen = self._seen
        (self._seen,) = self.sqlite.execute("PRAGMA data_version").fetchone()
        return bool(seen != self._seen)
