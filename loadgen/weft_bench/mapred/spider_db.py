"""SQLite databases with the schemas of Spider and synthetic rows.

Spider's own rows are not part of the recorded workloads. Ours are a function of the schema: keys
count from 1, a foreign key has a value of the column that it refers to, and other values follow
from a checksum of table, column and row. Queries run and join, but few of their literals occur.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

ROWS: Final = 30
# Rows of each table that prompts show.
SHOWN: Final = 3
_TYPES: Final[Mapping[str, str]] = {"number": "INTEGER", "boolean": "INTEGER"}
_WORDS: Final = (
    "Amber", "Basin", "Cedar", "Delta", "Ember", "Fjord", "Grove", "Haven", "Inlet", "Juniper",
    "Knoll", "Lagoon", "Meadow", "Nectar", "Oasis", "Prairie", "Quarry", "Ridge", "Summit",
    "Tundra",
)  # fmt: skip
# Foreign keys that refer to each other in a circle end here.
_DEPTH: Final = 4


@dataclass(frozen=True, slots=True)
class Database:
    """A database. tables: names. columns: table number and name; the first one is `*`. types: of
    the columns. keys: numbers of primary keys. references: a column's number to that of the column
    that it refers to.
    """

    name: str
    tables: tuple[str, ...]
    columns: tuple[tuple[int, str], ...]
    types: tuple[str, ...]
    keys: frozenset[int]
    references: Mapping[int, int]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Database:
        """Read a record of `spider_schemas`."""
        return cls(
            record["db_id"],
            tuple(record["table_names_original"]),
            tuple((table, name) for table, name in record["column_names_original"]),
            tuple(record["column_types"]),
            frozenset(record["primary_keys"]),
            dict(record["foreign_keys"]),
        )

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the tables, without those that SQLite keeps for itself."""
        named = enumerate(self.tables)
        return [number for number, name in named if not name.startswith("sqlite_")]

    def own(self, table: int) -> list[int]:
        """Return the numbers of a table's columns."""
        return [number for number, (owner, _) in enumerate(self.columns) if owner == table]

    def statement(self, table: int) -> str:
        """Return the statement that creates a table."""
        lines = [
            f'"{self.columns[one][1]}" {_TYPES.get(self.types[one], "TEXT")}'
            for one in self.own(table)
        ]
        for one in self.own(table):
            if one in self.references:
                owner, name = self.columns[self.references[one]]
                mine = self.columns[one][1]
                lines.append(f'FOREIGN KEY ("{mine}") REFERENCES "{self.tables[owner]}" ("{name}")')
        return f'CREATE TABLE "{self.tables[table]}" (\n  ' + ",\n  ".join(lines) + "\n)"

    def rows(self, table: int, count: int) -> Iterator[tuple[Any, ...]]:
        """Yield the first rows of a table."""
        own = self.own(table)
        for row in range(count):
            yield tuple(self._value(column, row) for column in own)

    def text(self) -> str:
        """Return the schema for prompts: statements, and some rows of each table."""
        parts = []
        for number in self.numbers:
            shown = "\n".join(" | ".join(map(str, row)) for row in self.rows(number, SHOWN))
            parts.append(f"{self.statement(number)};\n/* {SHOWN} rows:\n{shown}\n*/")
        return "\n\n".join(parts)

    def create(self, path: Path) -> None:
        """Write the database into a new file. Raises OSError and sqlite3.Error."""
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        try:
            for number in self.numbers:
                connection.execute(self.statement(number))
                marks = ", ".join("?" * len(self.own(number)))
                insert = f'INSERT INTO "{self.tables[number]}" VALUES ({marks})'
                connection.executemany(insert, self.rows(number, ROWS))
            connection.commit()
        finally:
            connection.close()

    def _value(self, column: int, row: int, depth: int = 0) -> Any:
        table, name = self.columns[column]
        drawn = crc32(f"{self.name}/{table}/{name}/{row}".encode())
        if column in self.references and depth < _DEPTH:
            # A column that is a key, too, stays unique.
            at = row if column in self.keys else drawn % ROWS
            return self._value(self.references[column], at, depth + 1)
        kind = self.types[column]
        if column in self.keys:
            return row + 1 if kind in _TYPES else f"{name}_{row + 1}"
        if kind == "boolean":
            return drawn % 2
        if kind == "number":
            return drawn % 1000
        if kind == "time":
            return f"{1990 + drawn % 30}-{1 + drawn // 30 % 12:02}-{1 + drawn // 360 % 28:02}"
        return f"{_WORDS[drawn % 20]} {_WORDS[drawn // 20 % 20]}"
