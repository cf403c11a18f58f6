"""The SLO report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

_Report = Mapping[str, Any]
# Columns that only some tables have.
_FIRST: Final = ("class", "tenant", "deadline_s", "weight", "service_s", "share")
_COUNTS: Final = ("units", "met", "late", "unended", "refused")
# Characters of a line if the output is no terminal.
_PIPED: Final = 120


def show(report: _Report, console: Console | None = None) -> None:
    """Print a report (`Report.to_json`)."""
    out = console or Console()
    if not (console or out.is_terminal):
        out.width = _PIPED
    since = datetime.fromtimestamp(report["since"], UTC)
    gateways = len(report["gateways"])
    out.print(f"Since {since:%Y-%m-%d %H:%M} UTC, {gateways} gateway{'s' if gateways > 1 else ''}")
    out.print(_units("By class", report["classes"]))
    if any(one["misses"] for one in report["classes"]):
        out.print(_misses(report["classes"]))
    if report["tenants"]:
        out.print(_units("By tenant", report["tenants"]))
    if len(report["rows"]) > 1:
        out.print(_units("By class and tenant", report["rows"]))
    fairness = report["fairness"]
    out.print(
        "Jain's index over tenants (1 is fair): "
        f"attainment {_ratio(fairness['attainment'])}, "
        f"service by weight {_ratio(fairness['service'])}"
    )
    covered = [
        f"{name} p50 {_percent(one['p50'])}, p90 {_percent(one['p90'])}"
        for name, one in report["forecasts"].items()
        if one["forecasts"]
    ]
    if covered:
        out.print(f"Forecasts that were enough: {'; '.join(covered)}")


def _units(title: str, rows: list[_Report]) -> Table:
    first = rows[0].keys() if rows else ()
    columns = [name for name in _FIRST if name in first]
    if any(row["goal"] is not None for row in rows):
        columns.append("goal")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    names = [name for name in columns if name in ("class", "tenant")]
    for name in names:
        table.add_column(name)
    for name in (*_COUNTS, "attained"):
        table.add_column(name, justify="right")
    others = [name for name in columns if name not in names]
    for name in others:
        table.add_column({"deadline_s": "deadline", "service_s": "service"}.get(name, name))
    table.add_column("slack p10", justify="right")
    table.add_column("p50", justify="right")
    for row in rows:
        table.add_row(
            *[row[name] or "(none)" for name in names],
            *[str(row[name]) for name in _COUNTS],
            _percent(row["attainment"]),
            *[_cell(row, name) for name in others],
            _seconds(row["slack"]["p10_s"]),
            _seconds(row["slack"]["p50_s"]),
        )
    return table


def _misses(rows: list[_Report]) -> Table:
    table = Table(
        "class", "cause", title="Misses by cause", title_justify="left", box=box.SIMPLE_HEAD,
        pad_edge=False,
    )  # fmt: skip
    table.add_column("units", justify="right")
    table.add_column("of the misses", justify="right")
    for row in rows:
        total = sum(row["misses"].values())
        for number, (cause, units) in enumerate(row["misses"].items()):
            name = "" if number else row["class"] or "(none)"
            table.add_row(name, cause.replace("_", " "), str(units), _percent(units / total))
    return table


def _cell(row: _Report, name: str) -> str:
    value = row[name]
    if name == "goal":
        return _goal(row)
    if name == "share" or value is None:
        return _percent(value)
    if name == "deadline_s":
        return f"{value:g} s per {row['scope']}"
    return f"{value:.1f} s" if name == "service_s" else f"{value:g}"


def _goal(row: _Report) -> str:
    goal, met = row["goal"], row["goal_met"]
    if goal is None:
        return "-"
    text = f"{100 * goal:.4g}%"
    if met is None:
        return text
    return f"{text} [green]met[/]" if met else f"{text} [red]missed[/]"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
