"""Training text of the demo tokenizer. It is the same on every machine.

Byte pair merges depend on counts. The text therefore repeats words by rank, as in real text (Zipf),
and contains JSON in the forms of real traffic: compact, spaced and indented.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
_COMMON: Final = 300
_PASSAGE_WEIGHT: Final = 6
_JSON_WEIGHT: Final = 2


def words() -> list[str]:
    """Return every word once, in lower case, the most frequent first."""
    return list(dict.fromkeys((FOLDER / "words.txt").read_text("utf-8").split()))


def _weighted() -> Iterator[str]:
    """Yield words in the forms of real text: after a space, at a sentence's start, in code."""
    for rank, word in enumerate(words()):
        yield from [f" {word}"] * (3 + 2 * _COMMON // (rank + 20))
        if rank < 4 * _COMMON:
            yield from [f" {word.capitalize()}", f".{word}", f"_{word}", f"\n{word.capitalize()}"]


def _objects() -> Iterator[dict[str, Any]]:
    keys = (FOLDER / "keys.txt").read_text("utf-8").split()
    for number, key in enumerate(keys):
        other, third = keys[(number * 7 + 3) % len(keys)], keys[(number * 11 + 5) % len(keys)]
        yield {
            key: f"{other}_{number * 37 % 1000}",
            other: [number, number * 113 % 10000, round(number * 1.7, 2)],
            third: {"type": "string", "description": f"The {key.replace('_', ' ')} to use."},
            "required": [key, other],
            "date": f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}",
            "available": number % 2 == 0,
            "next": None,
        }
        yield {"name": f"get_{key}", "arguments": {key: other, "limit": number}}


def pieces() -> Iterator[str]:
    """Yield the corpus in pieces, about 500 KB. Raise OSError if the data files are missing."""
    yield from _weighted()
    passages = (FOLDER / "corpus.txt").read_text("utf-8")
    for _ in range(_PASSAGE_WEIGHT):
        yield passages
    for _ in range(_JSON_WEIGHT):
        for item in _objects():
            compact = json.dumps(item, separators=(",", ":"))
            yield json.dumps(item) + "\n"
            yield compact + "\n"
            yield json.dumps(item, indent=2) + "\n"
            # Arguments of tool calls are JSON within a JSON string.
            yield json.dumps({"arguments": compact}) + "\n"
