"""The SLO report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

_Report = Mapping[str, Any]


def show(report: _Report, console: Console | None = None) -> None:
    """Print a report (`Report.to_json`)."""
    out = console or Console()
    since = datetime.fromtimestamp(report["since"], UTC)
    gateways = len(report["gateways"])
    out.print(f"Since {since:%Y-%m-%d %H:%M} UTC, {gateways} gateway{'s' if gateways > 1 else ''}")
    out.print(_units("By class", ("class", "deadline"), report["classes"]))
    if any(one["misses"] for one in report["classes"]):
        out.print(_misses(report["classes"]))
    if report["tenants"]:
        out.print(_units("By tenant", ("tenant", "service", "share"), report["tenants"]))
    if len(report["rows"]) > 1:
        out.print(_units("By class and tenant", ("class", "tenant"), report["rows"]))
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


def _units(title: str, first: tuple[str, ...], rows: list[_Report]) -> Table:
    goals = any(row["goal"] is not None for row in rows)
    table = Table(title=title, title_justify="left")
    for name in first:
        table.add_column(name, justify="left" if name in ("class", "tenant") else "right")
    for name in ("units", "met", "late", "unended", "refused", "attainment"):
        table.add_column(name, justify="right")
    if goals:
        table.add_column("goal")
    table.add_column("slack p10", justify="right")
    table.add_column("p50", justify="right")
    for row in rows:
        counts = [str(row[name]) for name in ("units", "met", "late", "unended", "refused")]
        cells = [_first(row, name) for name in first] + [*counts, _percent(row["attainment"])]
        if goals:
            cells.append(_goal(row))
        slack = row["slack"]
        table.add_row(*cells, _seconds(slack["p10_s"]), _seconds(slack["p50_s"]))
    return table


def _misses(rows: list[_Report]) -> Table:
    table = Table("class", "cause", title="Misses by cause", title_justify="left")
    table.add_column("units", justify="right")
    table.add_column("of the misses", justify="right")
    for row in rows:
        total = sum(row["misses"].values())
        for number, (cause, units) in enumerate(row["misses"].items()):
            name = "" if number else _first(row, "class")
            table.add_row(name, cause.replace("_", " "), str(units), _percent(units / total))
    return table


def _first(row: _Report, name: str) -> str:
    value = row.get({"deadline": "deadline_s", "service": "service_s"}.get(name, name))
    if name == "deadline":
        return "-" if value is None else f"{value:g} s / {row['scope']}"
    if name == "service":
        return f"{value:.1f} s"
    return _percent(value) if name == "share" else str(value) or "(none)"


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
