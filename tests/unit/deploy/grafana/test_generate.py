"""The provisioned dashboards are up to date and use existing metrics."""

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
from weft_deploy.grafana.generate import FOLDER, files
from weft_deploy.grafana.panels import DATA_SOURCE

BOARDS: list[dict[str, Any]] = [json.loads(text) for text in files().values()]


def targets() -> Iterator[tuple[str, str]]:
    """Yield (panel title, expression) of every query, with the variables' default values."""
    for board in BOARDS:
        for panel in board["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", "5m")
                for variable in board["templating"]["list"]:
                    value = variable["current"]["value"]
                    expression = expression.replace(f"${variable['name']}", value)
                yield panel["title"], expression


def test_the_committed_dashboards_are_up_to_date() -> None:
    on_disk = {file: file.read_text() for file in FOLDER.glob("*.json")}
    assert on_disk == files(), "run: python -m weft_deploy.grafana.generate"


@pytest.mark.parametrize(("title", "expression"), list(targets()))
def test_queries_use_existing_metrics_and_labels(title: str, expression: str) -> None:
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
    (choice,) = BOARDS[0]["templating"]["list"]
    assert {option["value"] for option in choice["options"]} <= bounds


def test_every_metric_of_calls_is_on_a_dashboard() -> None:
    shown = {metric for _, expression in targets() for metric, _ in promql.selectors(expression)}
    exposed = {name for name in promql.exposed() if not name.endswith(("_created", "_sum"))}
    stems = {name.removesuffix("_bucket").removesuffix("_count") for name in shown}
    assert {name.removesuffix("_bucket").removesuffix("_count") for name in exposed} == stems


def test_dashboards_use_the_provisioned_data_source() -> None:
    file = FOLDER.parent / "provisioning/datasources/prometheus.yml"
    (source,) = yaml.safe_load(file.read_text())["datasources"]
    assert {"type": source["type"], "uid": source["uid"]} == DATA_SOURCE
    for board in BOARDS:
        assert all(panel["datasource"] == DATA_SOURCE for panel in board["panels"])


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
