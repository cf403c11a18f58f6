"""Alerts are well-formed, use existing metrics, and fire in the right scenarios."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import promql
from support.prometheus import program

FOLDER = Path(__file__).parents[4] / "deploy" / "prometheus"
CONFIG = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
SCENES = yaml.safe_load((FOLDER / "alerts.test.yml").read_text())
DURATION = re.compile(r"\d+[smhd]")


def test_the_configuration_loads_the_rules() -> None:
    for name in CONFIG["rule_files"]:
        assert (FOLDER / name).is_file()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_rules_use_existing_metrics_and_jobs(rule: dict[str, Any]) -> None:
    promql.check(rule["expr"])
    jobs = {job["job_name"] for job in CONFIG["scrape_configs"]}
    assert set(re.findall(r'job="([^"]+)"', rule["expr"])) <= jobs


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_has_a_delay_and_a_severity(rule: dict[str, Any]) -> None:
    assert DURATION.fullmatch(rule["for"])
    assert rule["labels"]["severity"] in {"page", "warn"}
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    kept = promql.groupings(rule["expr"]) or promql.SCRAPED
    assert named <= kept, "the summary names a label that the expression drops"


def test_scenarios_use_existing_alerts_and_metrics() -> None:
    alerts = {rule["alert"] for rule in RULES}
    for scene in SCENES["tests"]:
        assert {test["alertname"] for test in scene["alert_rule_test"]} <= alerts
        for given in scene["input_series"]:
            promql.check(given["series"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts.test.yml")]
)
def test_promtool_accepts_the_rules_and_scenarios(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
