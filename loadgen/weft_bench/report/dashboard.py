"""Draws a Grafana dashboard from the series of a real Prometheus, for pictures in the docs:

    python -m weft_bench.report.dashboard --prometheus http://127.0.0.1:9090 --minutes 10 \
        --board deploy/grafana/dashboards/weft-slo.json --out docs/images/slo-dashboard.png

The queries, titles and units are those of the dashboard's file. The look is matplotlib's.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

_POINTS: Final = 120
_INTERVAL: Final = "1m"
_COLUMNS: Final = 2
_NAME: Final = re.compile(r"\{\{(\w+)\}\}")

Series = tuple[str, Sequence[float], Sequence[float]]


def series(
    api: httpx.Client, target: Mapping[str, str], begin_s: float, end_s: float
) -> list[Series]:
    """Return the series of a query of a panel: legend, minutes from the begin, and values. Raises
    httpx.HTTPError, and ValueError for an error of the query.
    """
    answer = api.get(
        "/api/v1/query_range",
        params={
            "query": target["expr"].replace("$__rate_interval", _INTERVAL),
            "start": f"{begin_s:.3f}",
            "end": f"{end_s:.3f}",
            "step": f"{(end_s - begin_s) / _POINTS:.3f}",
        },
    ).json()
    if answer.get("status") != "success":
        raise ValueError(f"{target['expr']}: {answer.get('error')}")
    found: list[Series] = []
    for one in answer["data"]["result"]:
        legend = target["legendFormat"]
        for name in _NAME.findall(legend):
            legend = legend.replace(f"{{{{{name}}}}}", one["metric"].get(name, ""))
        times = [(float(at) - begin_s) / 60 for at, _ in one["values"]]
        found.append((legend, times, [float(value) for _, value in one["values"]]))
    return found


def draw(board: Mapping[str, Any], url: str, minutes: float, out: Path) -> dict[str, int]:
    """Draw the panels of a dashboard over the last minutes. Returns the number of series of each
    panel by title. Raises as `series`.
    """
    from matplotlib.figure import Figure

    end_s = time.time()
    begin_s = end_s - minutes * 60
    panels = board["panels"]
    rows = -(-len(panels) // _COLUMNS)
    figure = Figure(figsize=(7 * _COLUMNS, 2.6 * rows), layout="constrained")
    figure.suptitle(board["title"])
    places = list(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
    drawn = {}
    with httpx.Client(base_url=url, trust_env=False) as api:
        for place, panel in zip(places, panels, strict=False):
            found = [
                one for target in panel["targets"] for one in series(api, target, begin_s, end_s)
            ]
            for legend, times, values in found:
                place.plot(times, values, label=legend, linewidth=1.2)
            drawing = panel["fieldConfig"]["defaults"]
            place.set_title(f"{panel['title']} ({drawing['unit']})", fontsize=9, loc="left")
            place.set_xlim(0, minutes)
            place.set_ylim(drawing.get("min"), 1.02 * drawing["max"] if "max" in drawing else None)
            place.grid(alpha=0.3)
            place.tick_params(labelsize=7)
            if found:
                place.legend(fontsize=6, ncols=3, loc="best")
            drawn[panel["title"]] = len(found)
    for place in places[len(panels) :]:
        place.set_axis_off()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=90)
    return drawn


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description="Draw a dashboard from a Prometheus.")
    parser.add_argument("--prometheus", required=True, help="URL of the server")
    parser.add_argument("--board", type=Path, required=True, help="JSON file of the dashboard")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, required=True, help="PNG or SVG file")
    options = parser.parse_args()
    board = json.loads(options.board.read_text())
    for title, count in draw(board, options.prometheus, options.minutes, options.out).items():
        print(f"{title}: {count} series")


if __name__ == "__main__":
    main()
