"""Batch workflows for `weft run`, with small data: a report over documents, a debate, and questions
to a database.

`python -m weft_run.examples FOLDER` copies them into a folder, and creates the database.
"""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from pathlib import Path
from typing import Final

_SHOP: Final = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE purchase (
  id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customer (id),
  item TEXT NOT NULL, cents INTEGER NOT NULL, day TEXT NOT NULL);
INSERT INTO customer VALUES (1, 'Ada', 'Oslo'), (2, 'Ben', 'Lyon'), (3, 'Cleo', 'Oslo');
INSERT INTO purchase VALUES
  (1, 1, 'lamp', 4900, '2026-01-04'), (2, 1, 'desk', 18900, '2026-02-11'),
  (3, 2, 'lamp', 4900, '2026-02-12'), (4, 3, 'chair', 9900, '2026-03-01'),
  (5, 3, 'lamp', 4500, '2026-03-02');
"""


def copy(folder: Path) -> list[Path]:
    """Copy the workflows and their data into a folder, and create `shop.db` there. Existing files
    are kept. Returns the paths of the new files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for source in files(__name__).iterdir():
        target = folder / source.name
        if source.name.endswith((".yaml", ".jsonl")) and not target.exists():
            target.write_bytes(source.read_bytes())
            made.append(target)
    if not (folder / "shop.db").exists():
        create_shop(folder / "shop.db")
        made.append(folder / "shop.db")
    return sorted(made)


def create_shop(path: Path) -> None:
    """Create the database of the example `text_to_sql`."""
    connection = sqlite3.connect(path)
    connection.executescript(_SHOP)
    connection.close()
