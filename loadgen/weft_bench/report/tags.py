"""The table and the figures of `weft bench tags`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from weft_bench.report.figures import Figure
from weft_bench.stats import mean, percentile


@dataclass(frozen=True, slots=True)
class Row:
    """One data set under one tokenizer, its calls in their order. roles, wire, plain: share of each
    call's blocks with the right tag. seconds, learn_s: what each call took. warm_up: so many first
    calls are counted apart. tokens_off: error of the prompt's length, as a share."""

    roles: Sequence[float]
    wire: Sequence[float]
    plain: Sequence[float]
    tokens_off: Sequence[float]
    seconds: Sequence[float]
    learn_s: Sequence[float]
    warm_up: int

    def numbers(self) -> dict[str, tuple[float, str]]:
        """Every figure by its name, with its unit."""
        after = slice(self.warm_up, None)
        return {
            "calls": (len(self.roles), "1"),
            "roles_mean": (mean(self.roles[after]), "1"),
            "roles_p5": (percentile(self.roles[after], 0.05), "1"),
            "wire_mean": (mean(self.wire[after]), "1"),
            "wire_p5": (percentile(self.wire[after], 0.05), "1"),
            "first_roles_mean": (mean(self.roles[: self.warm_up]), "1"),
            "first_wire_mean": (mean(self.wire[: self.warm_up]), "1"),
            "plain_mean": (mean(self.plain[after]), "1"),
            "tokens_off_p50": (percentile(self.tokens_off[after], 0.5), "1"),
            "tag_p50": (percentile(self.seconds, 0.5), "s"),
            "tag_p99": (percentile(self.seconds, 0.99), "s"),
            "learn_p50": (percentile(self.learn_s, 0.5), "s"),
            "learn_p99": (percentile(self.learn_s, 0.99), "s"),
        }


# (tokenizer, data set) to its row.
Measured = Mapping[tuple[str, str], Row]


def figures(measured: Measured) -> list[Figure]:
    """All numbers: `tokenizer/data set/...`."""
    return [
        Figure(f"{tokenizer}/{data}/{name}", value, unit)
        for (tokenizer, data), row in measured.items()
        for name, (value, unit) in row.numbers().items()
    ]


def show(measured: Measured, title: str) -> None:
    """Print the table: shares in percent, times in microseconds."""
    table = Table(title=title, title_justify="left")
    table.add_column("tokenizer")
    table.add_column("data")
    shares = ("roles_mean", "roles_p5", "wire_mean", "wire_p5", "first_roles_mean", "plain_mean")
    times = ("tag_p50", "tag_p99", "learn_p50", "learn_p99")
    columns = ("roles %", "p5", "wire %", "p5", "first calls %", "chars/4 %")
    for column in ("calls", *columns, "tag us", "p99", "learn us", "p99"):
        table.add_column(column, justify="right")
    before = ""
    for (tokenizer, data), row in measured.items():
        if before not in ("", tokenizer):
            table.add_section()
        numbers = row.numbers()
        table.add_row(
            "" if before == tokenizer else tokenizer,
            data,
            f"{numbers['calls'][0]:,}",
            *(f"{100 * numbers[name][0]:.1f}" for name in shares),
            *(f"{1e6 * numbers[name][0]:,.0f}" for name in times),
        )
        before = tokenizer
    Console(width=max(140, Console().width)).print(table)
