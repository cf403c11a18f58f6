"""The SLO report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

_Report = Mapping[str, Any]
# Characters of a line if the output is no terminal.
_PIPED: Final = 120


def show(report: _Report, console: Console | None = None) -> None:
    """Print a report (`Report.to_json`)."""
    out = console or Console(highlight=False)
    if console is None and not out.is_terminal:
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


def _units(title: str, rows: Sequence[_Report]) -> Table:
    """Return a table of units, with the columns that its rows need."""
    columns = [name for name, need in _NEEDS.items() if any(need(row) for row in rows)]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in _LEFT else "right")
    for row in rows:
        table.add_row(*[_CELLS[name](row) for name in columns])
    return table


def _misses(rows: Sequence[_Report]) -> Table:
    table = Table(title="Misses by cause", title_justify="left", box=box.SIMPLE_HEAD)
    table.pad_edge = False
    table.add_column("class")
    table.add_column("cause")
    table.add_column("units", justify="right")
    table.add_column("of the misses", justify="right")
    for row in rows:
        total = sum(row["misses"].values())
        for number, (cause, units) in enumerate(row["misses"].items()):
            name = "" if number else _name(row, "class")
            table.add_row(name, cause.replace("_", " "), str(units), _percent(units / total))
    return table


def _name(row: _Report, member: str) -> str:
    return row[member] or "(none)"


def _deadline(row: _Report) -> str:
    seconds = row["deadline_s"]
    return "-" if seconds is None else f"{seconds:g} s/{row['scope']}"


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


_Cell = Callable[[_Report], str]
_LEFT: Final = ("class", "tenant", "goal")
_CELLS: Final[Mapping[str, _Cell]] = {
    "class": lambda row: _name(row, "class"),
    "tenant": lambda row: _name(row, "tenant"),
    "deadline": _deadline,
    "units": lambda row: str(row["units"]),
    "met": lambda row: str(row["met"]),
    "late": lambda row: str(row["late"]),
    "unended": lambda row: str(row["unended"]),
    "refused": lambda row: str(row["refused"]),
    "attained": lambda row: _percent(row["attainment"]),
    "goal": _goal,
    "slack p10": lambda row: _seconds(row["slack"]["p10_s"]),
    "p50": lambda row: _seconds(row["slack"]["p50_s"]),
    "weight": lambda row: f"{row['weight']:g}",
    "service": lambda row: _seconds(row["service_s"]),
    "share": lambda row: _percent(row["share"]),
}
# Whether a row needs a column.
_NEEDS: Final[Mapping[str, Callable[[_Report], bool]]] = {
    "class": lambda row: "class" in row,
    "tenant": lambda row: "tenant" in row,
    "deadline": lambda row: "deadline_s" in row,
    "units": lambda row: True,
    "met": lambda row: True,
    "late": lambda row: True,
    "unended": lambda row: bool(row["unended"]),
    "refused": lambda row: bool(row["refused"]),
    "attained": lambda row: True,
    "goal": lambda row: row["goal"] is not None,
    "slack p10": lambda row: True,
    "p50": lambda row: True,
    "weight": lambda row: row.get("weight", 1.0) != 1.0,
    "service": lambda row: "service_s" in row,
    "share": lambda row: "share" in row,
}
