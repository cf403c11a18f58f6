"""A small data set in the format of Spider's recorded files."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path

SCHEMA = {
    "table_names_original": ["singer", "song", "sqlite_sequence"],
    "column_names_original": [
        [-1, "*"], [0, "Id"], [0, "Name"], [1, "Code"], [1, "Singer"], [1, "Share (%)"],
        [1, "Sung"], [1, "Live"], [2, "seq"],
    ],
    "column_types": [
        "text", "number", "text", "text", "number", "number", "time", "boolean", "text"
    ],
    "primary_keys": [1, 3],
    "foreign_keys": [[4, 1]],
}  # fmt: skip


def spider_data(folder: Path, databases: Mapping[str, int]) -> Path:
    """Write questions to databases. databases: questions of each."""
    prompts = folder / "prompts"
    prompts.mkdir()
    with lzma.open(prompts / "spider_schemas.jsonl.xz", "wt") as file:
        for name in databases:
            file.write(json.dumps({"db_id": name, **SCHEMA}) + "\n")
    with lzma.open(prompts / "spider_dev.jsonl.xz", "wt") as file:
        for name, count in databases.items():
            for number in range(count):
                record = {
                    "db_id": name,
                    "question": f"{name} {number}?",
                    "query": "SELECT Name FROM song JOIN singer ON Singer = Id ;",
                }
                file.write(json.dumps(record) + "\n")
    return folder
