"""The provisioned dashboards are well-formed and show every series of the gateway."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import promql
from support.prometheus import program

FOLDER = Path(__file__).parents[3] / "deploy" / "grafana"
BOARDS: dict[str, Any] = {
    file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("dashboards/*.json"))
}


def targets() -> Iterator[tuple[str, str]]:
    """Yield (panel title, expression) of every query, with the variables' default values."""
    for board in BOARDS.values():
        for panel in board["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", "5m")
                for variable in board["templating"]["list"]:
                    value = variable["current"]["value"]
                    expression = expression.replace(f"${variable['name']}", value)
                yield panel["title"], expression


def test_queries_use_existing_metrics_and_labels() -> None:
    for title, expression in targets():
        assert "$" not in expression
        assert list(promql.selectors(expression)), title
        promql.check(expression)


def test_latency_targets_are_bucket_bounds() -> None:
    from weft_gateway.telemetry.metrics import Metrics

    metrics = Metrics()
    metrics.latency.labels("chat").observe(1.0)
    bounds = {
        sample.labels["le"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "weft_call_seconds_bucket"
    }
    (choice,) = BOARDS["weft-latency"]["templating"]["list"]
    assert {option["value"] for option in choice["options"]} <= bounds


def test_every_metric_of_calls_is_on_a_dashboard() -> None:
    shown = {metric for _, expression in targets() for metric, _ in promql.selectors(expression)}
    exposed = {name for name in promql.exposed() if not name.endswith(("_created", "_sum"))}
    stems = {name.removesuffix("_bucket").removesuffix("_count") for name in shown}
    assert {name.removesuffix("_bucket").removesuffix("_count") for name in exposed} == stems


def test_panels_have_ids_places_and_the_provisioned_data_source() -> None:
    file = FOLDER / "provisioning/datasources/prometheus.yml"
    (source,) = yaml.safe_load(file.read_text())["datasources"]
    for name, board in BOARDS.items():
        assert board["uid"] == name
        panels = board["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            assert panel["datasource"] == {"type": source["type"], "uid": source["uid"]}
            grid = panel["gridPos"]
            assert grid["x"] + grid["w"] <= 24
            columns = range(grid["x"], grid["x"] + grid["w"])
            cells = {(x, grid["y"] + dy) for x in columns for dy in range(grid["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells


@pytest.mark.slow
def test_promtool_parses_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"q{n}", "expr": expr} for n, (_, expr) in enumerate(targets())]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
