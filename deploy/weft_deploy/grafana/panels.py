"""Builds Grafana dashboards from panels: dashboard JSON of schema 39 and later. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

JSON = dict[str, Any]

DATA_SOURCE: Final = {"type": "prometheus", "uid": "weft-prometheus"}
_WINDOW: Final = "[$__rate_interval]"
_WIDTH: Final = 24
_HEIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and the legend of its series, for example `{{replica}}`."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel. unit: Grafana's name of the unit (`s`, `percentunit`, `reqps`, `short`).

    per_row: number of panels of this width in a row. kind: `timeseries` or `stat`. signed: values
    can be negative. most: upper end of the axis, None for that of the values.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    per_row: int = 2
    kind: str = "timeseries"
    stacked: bool = False
    signed: bool = False
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable at the top of a dashboard, with fixed values; the first is the default."""

    name: str
    label: str
    values: tuple[str, ...]


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Return the query for a counter's summed rate per second, for each value of the label `by`."""
    selector = f"{{{where}}}" if where else ""
    group = f" by ({by})" if by else ""
    return f"sum{group} (rate({metric}{selector}{_WINDOW}))"


def dashboard(uid: str, title: str, panels: Sequence[Panel], choices: Sequence[Choice]) -> JSON:
    """Return a dashboard with the panels laid out from left to right, top to bottom."""
    placed: list[JSON] = []
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        width = _WIDTH // panel.per_row
        if x + width > _WIDTH:
            x, y = 0, y + _HEIGHT
        grid = {"x": x, "y": y, "w": width, "h": _HEIGHT}
        placed.append({"id": number, "gridPos": grid, **_panel(panel)})
        x += width
    return {
        "uid": uid,
        "title": title,
        "tags": ["weft"],
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_variable(choice) for choice in choices]},
        "panels": placed,
    }


def _panel(panel: Panel) -> JSON:
    drawing: JSON = {"unit": panel.unit}
    if not panel.signed:
        drawing["min"] = 0
    if panel.most is not None:
        drawing["max"] = panel.most
    if panel.kind == "timeseries":
        drawing["custom"] = {
            "fillOpacity": 25 if panel.stacked else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
        options: JSON = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    else:
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "fieldConfig": {"defaults": drawing, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATA_SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _variable(choice: Choice) -> JSON:
    options = [
        {"text": value, "value": value, "selected": value == choice.values[0]}
        for value in choice.values
    ]
    return {
        "name": choice.name,
        "label": choice.label,
        "type": "custom",
        "query": ",".join(choice.values),
        "options": options,
        "current": options[0],
        "multi": False,
        "includeAll": False,
    }
