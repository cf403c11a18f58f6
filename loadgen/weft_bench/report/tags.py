"""Figures of `weft bench tags`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_bench.report.rows import Column
from weft_bench.stats import mean, percentile

LABELS: Final = ("tokenizer", "data")
COLUMNS: Final = (
    Column("calls", "1", "calls", ",.0f"),
    Column("roles_mean", "1", "roles %", ".1f", 100),
    Column("roles_p5", "1", "roles p5", ".1f", 100),
    Column("wire_mean", "1", "wire %", ".1f", 100),
    Column("wire_p5", "1", "wire p5", ".1f", 100),
    Column("first_roles_mean", "1", "first calls %", ".1f", 100),
    Column("first_wire_mean"),
    Column("plain_mean", "1", "chars/4 %", ".1f", 100),
    Column("tokens_off_p50"),
    Column("tag_p50", "s", "tag us", ",.0f", 1e6),
    Column("tag_p99", "s", "tag p99", ",.0f", 1e6),
    Column("learn_p50", "s", "learn us", ",.0f", 1e6),
    Column("learn_p99", "s", "learn p99", ",.0f", 1e6),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One data set under one tokenizer, its calls in order.

    roles, wire, plain: share of each call's blocks with the right tag. seconds, learn_s: time of
    each call. warm_up: first calls that are counted separately. tokens_off: error of the prompt's
    length, as a fraction.
    """

    roles: Sequence[float]
    wire: Sequence[float]
    plain: Sequence[float]
    tokens_off: Sequence[float]
    seconds: Sequence[float]
    learn_s: Sequence[float]
    warm_up: int

    def values(self) -> dict[str, float]:
        """Return the figures by the names of COLUMNS."""
        after = slice(self.warm_up, None)
        return {
            "calls": len(self.roles),
            "roles_mean": mean(self.roles[after]),
            "roles_p5": percentile(self.roles[after], 0.05),
            "wire_mean": mean(self.wire[after]),
            "wire_p5": percentile(self.wire[after], 0.05),
            "first_roles_mean": mean(self.roles[: self.warm_up]),
            "first_wire_mean": mean(self.wire[: self.warm_up]),
            "plain_mean": mean(self.plain[after]),
            "tokens_off_p50": percentile(self.tokens_off[after], 0.5),
            "tag_p50": percentile(self.seconds, 0.5),
            "tag_p99": percentile(self.seconds, 0.99),
            "learn_p50": percentile(self.learn_s, 0.5),
            "learn_p99": percentile(self.learn_s, 0.99),
        }
