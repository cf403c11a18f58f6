"""The page of `weft bench batches --beside ROWS`: its table and its goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft_bench.cli.parts import BatchesOptions
from weft_bench.report.rows import Column

PLAIN: Final = "plain calls"
WAYS: Final = ("weft run", "run over HTTP", "batch", PLAIN)
P95_GOAL: Final = 1.10
SPEED_GOAL: Final = 0.9
# Rows of the goals.
GOAL_ROWS: Final = 10_000
_LATE: Final = 0.01
DOCUMENTS: Final = 20
DOCUMENT_WORDS: Final = 150
ROW_TOKENS: Final = 32
CHAT_WORDS: Final = 110
CHAT_TOKENS: Final = 64
_COLUMNS: Final = (
    Column("alone", "1/s", "rows/s alone", ".1f"),
    Column("beside", "1/s", "beside chats", ".1f"),
    Column("speed", "1", "over the remaining capacity", ".2f"),
    Column("chats", "1", "chats", ",.0f"),
    Column("mean", "s", "mean, s", ".3f"),
    Column("p95", "s", "P95, s", ".3f"),
    Column("p95_ratio", "1", "P95 over alone", ".2f"),
    Column("late", "1", "late", ".1%"),
)


def table(
    options: BatchesOptions, found: Mapping[str, Mapping[str, float]], capacity: float
) -> dict[str, Any]:
    """Return the table. found: figures by way. capacity: chats per engine second."""
    load = options.chats * options.replicas
    fewer = "" if options.beside >= GOAL_ROWS else f" The goals are for {GOAL_ROWS:,} rows."
    return {
        "title": f"{load:g} chats per second of the {capacity:.1f} that {options.replicas} engines "
        f"serve without rows, with prompts of {CHAT_WORDS} words and {CHAT_TOKENS} tokens; "
        f"{options.beside:,} rows with one of {DOCUMENTS} documents of {DOCUMENT_WORDS} words, a "
        f"question, and {ROW_TOKENS} tokens; one run each, in engine seconds. `P95 over alone`: "
        "that of the chats that were sent while the rows ran, over that of chats without rows, "
        f"goal {P95_GOAL:g}. `over the remaining capacity`: rows per second beside chats over "
        "those of the fastest way alone times the part of the capacity for chats that these "
        "chats leave, "
        f"goal {SPEED_GOAL:g}. This part counts the chats at their lowest cost, in full batches. "
        f"`{PLAIN}` are those of a client with as many calls at once, and have no goal.{fewer}"
        " The starts of processes are not part of the speed",
        "labels": 1,
        "columns": ["run", *(column.heading for column in _COLUMNS)],
        "rows": [
            [name, *(column.shown(values) for column in _COLUMNS)] for name, values in found.items()
        ],
    }


def missed(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the missed goals, and runs on a machine that was too slow. found: figures by way."""
    lines = []
    for way in WAYS:
        ratio, speed = found[way]["p95_ratio"], found[way]["speed"]
        what = "speed over the remaining capacity"
        if way != PLAIN and ratio > P95_GOAL:
            lines.append(f"{way}: P95 of chats over alone {ratio:.2f}, goal {P95_GOAL:g}")
        if way != PLAIN and speed < SPEED_GOAL:
            lines.append(f"{way}: {what} {speed:.2f}, goal {SPEED_GOAL:g}")
    lines += [
        f"{name}: the machine was too slow: {one['late']:.1%} late"
        for name, one in found.items()
        if one["late"] > _LATE
    ]
    return lines
