"""Figures of `weft bench lineage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from weft_bench.report.rows import Column
from weft_bench.stats import percentile

# By call: its actual program and the program that lineage found.
Labels = Sequence[tuple[int, str]]

LABELS: Final = ("set", "variant")
COLUMNS: Final = (
    *(
        Column(f"{when}/{what}", "1", f"{heading} {what}".strip(), ".4f")
        for when, heading in (("at_once", ""), ("in_the_end", "in the end"), ("with_text", "text"))
        for what in ("precision", "recall")
    ),
    Column("calls", "1", "calls", ",.0f"),
    Column("calls_with_text"),
    Column("programs", "1", "programs", ",.0f"),
    Column("held", "bytes", "KB held", ",.0f", 1e-3),
    Column("fingerprints"),
    *(
        Column(f"{what}/{share}", "us", f"{what} {share}, us", ".0f")
        for what in ("ask", "answer")
        for share in ("p50", "p99")
    ),
)
COSTS: Final = (Column("p50", "us", "p50, us", ".0f"), Column("p99", "us", "p99, us", ".0f"))


def pairs(labels: Labels) -> tuple[float, float]:
    """Return the precision and recall of pairs of calls.

    Precision: share of the pairs put into one program that belong together. Recall: share of the
    pairs that belong together that were put into one program. 1 without pairs.
    """
    both = _count(labels)
    true, found = _count(t for t, _ in labels), _count(f for _, f in labels)
    return both / found if found else 1.0, both / true if true else 1.0


def _count(values: Iterable[object]) -> int:
    return sum(n * (n - 1) // 2 for n in Counter(values).values())


def times(seconds: Sequence[float], at: str = "") -> dict[str, float]:
    """Return median and p99 in microseconds, with names that begin with `at`."""
    return {f"{at}p{int(100 * q)}": 1e6 * percentile(seconds, q) for q in (0.5, 0.99)}
