"""The table and the figures of `weft bench lineage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure
from weft_bench.stats import percentile

# By call: the program that it is of, and the one that was found.
Labels = Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of calls: of those put into one program, the share that is (precision), and of those
    that are of one, the share put there (recall). 1 where there are no pairs."""

    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class Row:
    """One set in one variant. *_us: microseconds of processor time, of each call."""

    calls: int
    programs: int
    at_once: Pairs
    in_the_end: Pairs
    with_text: Pairs
    calls_with_text: int
    ask_us: Sequence[float]
    answer_us: Sequence[float]
    held_bytes: int
    fingerprints: int


# (set, variant) to its row; and what a call of so many messages takes, microseconds, by what it is.
Rows = Mapping[tuple[str, str], Row]
Costs = Mapping[str, Sequence[float]]


def pairs(labels: Labels) -> Pairs:
    """Precision and recall of pairs."""
    both = _count(labels)
    true, found = _count(t for t, _ in labels), _count(f for _, f in labels)
    return Pairs(both / found if found else 1.0, both / true if true else 1.0)


def _count(values: Iterable[object]) -> int:
    return sum(n * (n - 1) // 2 for n in Counter(values).values())


def figures(rows: Rows, costs: Costs) -> list[Figure]:
    """All numbers: `set/variant/...`, and `cost/what/...`."""
    found = []
    for (name, variant), row in rows.items():
        at = f"{name}/{variant}"
        for when, value in (
            ("at_once", row.at_once),
            ("in_the_end", row.in_the_end),
            ("with_text", row.with_text),
        ):
            found.append(Figure(f"{at}/{when}/precision", value.precision, "1"))
            found.append(Figure(f"{at}/{when}/recall", value.recall, "1"))
        found += [
            Figure(f"{at}/calls", row.calls, "1"),
            Figure(f"{at}/calls_with_text", row.calls_with_text, "1"),
            Figure(f"{at}/programs", row.programs, "1"),
            Figure(f"{at}/held", row.held_bytes, "bytes"),
            Figure(f"{at}/fingerprints", row.fingerprints, "1"),
        ]
        for what, times in (("ask", row.ask_us), ("answer", row.answer_us)):
            found += _times(f"{at}/{what}", times)
    for what, times in costs.items():
        found += _times(f"cost/{what}", times)
    return found


def _times(at: str, times: Sequence[float]) -> list[Figure]:
    return [Figure(f"{at}/p{int(q * 100)}", percentile(times, q), "us") for q in (0.5, 0.99)]


def show(rows: Rows, costs: Costs) -> None:
    """Print the tables."""
    table = Table(title="Programs found without keys: pairs of calls", title_justify="left")
    table.add_column("set")
    table.add_column("variant")
    for column in (
        "calls", "programs", "precision", "recall", "with text", "", "in the end", "",
        "ask us p50", "p99", "answer us p50", "p99", "KB held",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    before = ""
    for (name, variant), row in rows.items():
        if before not in ("", name):
            table.add_section()
        table.add_row(
            "" if before == name else name,
            variant,
            f"{row.calls:,}",
            f"{row.programs:,}",
            *(
                f"{share:.4f}"
                for value in (row.at_once, row.with_text, row.in_the_end)
                for share in (value.precision, value.recall)
            ),
            *(
                f"{percentile(times, q):.0f}"
                for times in (row.ask_us, row.answer_us)
                for q in (0.5, 0.99)
            ),
            f"{row.held_bytes / 1e3:,.0f}",
        )
        before = name
    console = Console(width=190)
    console.print(table)
    table = Table(title="Processor time of a call, microseconds", title_justify="left")
    table.add_column("call")
    for column in ("p50", "p99"):
        table.add_column(column, justify="right")
    for what, times in costs.items():
        table.add_row(what, f"{percentile(times, 0.5):.0f}", f"{percentile(times, 0.99):.0f}")
    console.print(table)
