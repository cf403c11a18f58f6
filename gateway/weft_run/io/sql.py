"""SQL on SQLite files. Reads cannot change anything: SQLite checks each statement."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from weft_run.language.requests import SqlRequest

# A query with more rows needs a LIMIT: its value would not fit into a prompt either.
MAX_ROWS: Final = 10_000
# Of a result. A larger one could end the process of the run.
MAX_BYTES: Final = 16_777_216
# Of a value, a row that SQLite sorts, and a statement. The time of one operation, which SQLite does
# not interrupt, grows with the square of it.
MAX_VALUE_BYTES: Final = 1_048_576
_PATTERN_BYTES: Final = 1_000
# Of a value in a result, beside its name and text: a number, quotes, a colon and a comma.
_VALUE_BYTES: Final = 8
_STEPS: Final = 1_000
# Functions whose values depend on the time, on chance, or on the connection.
_VOLATILE: Final = frozenset(
    {
        "random", "randomblob", "date", "time", "datetime", "julianday", "strftime", "unixepoch",
        "timediff", "current_date", "current_time", "current_timestamp", "changes",
        "total_changes", "last_insert_rowid",
    }
)  # fmt: skip
# Functions that run native code, take native pointers, or use files.
_NATIVE: Final = frozenset(
    {"load_extension", "fts3_tokenizer", "fts5", "sqlite_log", "readfile", "writefile", "edit"}
)
# Descriptions of tables. `database_list` is missing: it has the paths of files.
_PRAGMAS: Final = (
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo",
    "foreign_key_list",
)  # fmt: skip
# Figures, of which full-text search reads some. With an argument, they could change the file.
_FIGURES: Final = ("data_version", "page_size", "user_version")
_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_ATTACHES: Final = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)


class Found(NamedTuple):
    """The rows of a query. repeatable: False if they depend on the time or on chance."""

    rows: list[dict[str, Any]]
    repeatable: bool


class SqlFailed(Exception):
    """A query has failed. passes: a later attempt may succeed."""

    def __init__(self, message: str, passes: bool = False) -> None:
        super().__init__(message)
        self.passes = passes


class Connection:
    """A connection for one query at a time, for reads or for writes."""

    def __init__(self, path: Path, write: bool, timeout_s: float) -> None:
        mode = "rw" if write else "ro"
        # Without a cache of statements: SQLite reports functions when it compiles a statement.
        self._sqlite = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            timeout=timeout_s,
            isolation_level=None,
            cached_statements=0,
            check_same_thread=False,
        )
        self._sqlite.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        self._sqlite.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_VALUE_BYTES)
        self._sqlite.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _PATTERN_BYTES)
        self._sqlite.set_authorizer(self._authorize)
        self._sqlite.set_progress_handler(self._over, _STEPS)
        self._write = write
        self._timeout_s = timeout_s
        self._end = 0.0
        self._refused, self._volatile = "", False

    def query(self, request: SqlRequest) -> Found:
        """Execute a statement, in any thread. Raises SqlFailed."""
        with _failures():
            return self._query(request)

    def _query(self, request: SqlRequest) -> Found:
        self._end = monotonic() + self._timeout_s
        self._refused, self._volatile = "", False
        try:
            with closing(self._sqlite.execute(request.query, dict(request.parameters))) as cursor:
                names = [column[0] for column in cursor.description or ()]
                rows = list(islice(_within(cursor, names), MAX_ROWS + 1))
        except sqlite3.Error as error:
            if self._refused:
                raise SqlFailed(self._refused) from None
            if monotonic() > self._end:
                raise SqlFailed(f"no result within {self._timeout_s:g} s") from None
            if _code(error) == sqlite3.SQLITE_TOOBIG:
                what = f"a value or row has more than {MAX_VALUE_BYTES} bytes"
                raise SqlFailed(what) from None
            raise error
        if repeated := next((one for one in names if names.count(one) > 1), None):
            raise SqlFailed(f"two columns are named {repeated!r}; name them with AS")
        if len(rows) > MAX_ROWS:
            raise SqlFailed(f"the query has more than {MAX_ROWS} rows; add a LIMIT")
        return Found([dict(zip(names, row, strict=True)) for row in rows], not self._volatile)

    def _authorize(self, action: int, first: Any, second: Any, *_: Any) -> int:
        """Answer SQLite, which asks before it compiles a part of a statement."""
        name = str(second if action == sqlite3.SQLITE_FUNCTION else first).lower()
        if action == sqlite3.SQLITE_FUNCTION:
            self._volatile |= name in _VOLATILE
            what = f"the function {name}" if name in _NATIVE else ""
        elif action == sqlite3.SQLITE_PRAGMA:
            reads = name in _PRAGMAS or (name in _FIGURES and second is None)
            what = "" if reads else f"PRAGMA {name}"
        elif action in _ATTACHES:
            what = "ATTACH, DETACH or VACUUM"
        else:
            # SQLite reports such an UPDATE when it opens a virtual table, and refuses others.
            opens = action == sqlite3.SQLITE_UPDATE and name == "sqlite_master"
            reads = self._write or opens or action in _READS
            what = "" if reads else "a statement that is no read, without 'write: true',"
        self._refused = self._refused or (what and f"{what} is not allowed")
        return sqlite3.SQLITE_DENY if self._refused else sqlite3.SQLITE_OK

    def _over(self) -> bool:
        return monotonic() > self._end

    def stop(self) -> None:
        """End the query that another thread runs, after its current operation."""
        self._end = 0.0
        self._sqlite.interrupt()

    def close(self) -> None:
        """Close the connection. No query may be running."""
        self._sqlite.close()


def _within(cursor: sqlite3.Cursor, names: Collection[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows. Raises SqlFailed once they are too large together: each has the names."""
    empty = sum(len(name.encode()) + _VALUE_BYTES for name in names)
    size = 0
    for row in cursor:
        size += empty + sum(len(value) for value in row if isinstance(value, str | bytes))
        if size > MAX_BYTES:
            raise SqlFailed(f"the result has more than {MAX_BYTES} bytes; select less")
        yield row


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's code of an error, 0 for an error of the module, which has none."""
    return getattr(error, "sqlite_errorcode", 0)


@contextmanager
def _failures() -> Iterator[None]:
    """Raise SqlFailed for an error of SQLite, of its module, or of memory."""
    try:
        yield
    except sqlite3.OperationalError as error:
        busy = _code(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        raise SqlFailed(str(error), busy) from None
    except MemoryError:
        raise SqlFailed("the query needs too much memory") from None
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        raise SqlFailed(str(error)) from None


class Databases:
    """Connections to SQLite files by name, for one thread. timeout_s: of a query."""

    def __init__(self, files: Mapping[str, Path], timeout_s: float) -> None:
        self._files = dict(files)
        self._timeout_s = timeout_s
        self._idle: defaultdict[tuple[str, bool], list[Connection]] = defaultdict(list)
        self._closed = False

    @property
    def names(self) -> Collection[str]:
        """The names of the connections."""
        return self._files.keys()

    def take(self, request: SqlRequest) -> Connection:
        """Return a connection for a request until `give`. Raises SqlFailed."""
        name, write = request.connection, request.write
        if name not in self._files:
            known = ", ".join(sorted(self._files)) or "none"
            raise SqlFailed(f"no connection is named {name!r}; configured: {known}")
        if idle := self._idle[name, write]:
            return idle.pop()
        with _failures():
            return Connection(self._files[name], write, self._timeout_s)

    def give(self, request: SqlRequest, connection: Connection) -> None:
        """Return the connection of a request that has ended."""
        if self._closed:
            connection.close()
        else:
            self._idle[request.connection, request.write].append(connection)

    def close(self) -> None:
        """Close all connections; those in use once they are given back."""
        self._closed = True
        for connection in chain(*self._idle.values()):
            connection.close()
