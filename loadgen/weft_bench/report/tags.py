"""Figures of `weft bench tags`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft_bench.report.rows import Column
from weft_bench.stats import mean, percentile

if TYPE_CHECKING:
    from weft_bench.micro.tags.way import Tagged

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


def values(calls: Sequence[Tagged], warm_up: int) -> dict[str, float]:
    """Return the figures of one data set under one tokenizer, by the names of COLUMNS.

    calls: in order. warm_up: first calls that are counted separately.
    """
    first, after = calls[:warm_up], calls[warm_up:]
    off = [abs(call.tokens_off) / call.prompt_tokens for call in after]
    return {
        "calls": len(calls),
        "roles_mean": mean([call.roles for call in after]),
        "roles_p5": percentile([call.roles for call in after], 0.05),
        "wire_mean": mean([call.wire for call in after]),
        "wire_p5": percentile([call.wire for call in after], 0.05),
        "first_roles_mean": mean([call.roles for call in first]),
        "first_wire_mean": mean([call.wire for call in first]),
        "plain_mean": mean([call.plain for call in after]),
        "tokens_off_p50": percentile(off, 0.5),
        "tag_p50": percentile([call.count_s for call in calls], 0.5),
        "tag_p99": percentile([call.count_s for call in calls], 0.99),
        "learn_p50": percentile([call.learn_s for call in calls], 0.5),
        "learn_p99": percentile([call.learn_s for call in calls], 0.99),
    }
