"""A pytest plugin: coverage notes the test that covers a line, and a file notes how tests end.

`COVERAGE_PROCESS_START` names the settings of coverage. They hold in processes that
tests start too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

NOTES = Path(os.environ.get("COVERAGE_PROCESS_START", "rc")).with_name("tests")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Attribute the lines that run to the test."""
    measuring = Coverage.current()
    if measuring:
        measuring.switch_context(item.nodeid)
    result = yield
    if measuring:
        measuring.switch_context("")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append [test, outcome, seconds] of each phase, in the process that runs the test."""
    if Coverage.current() and not hasattr(report, "node"):
        NOTES.mkdir(exist_ok=True)
        with (NOTES / f"{os.getpid()}.jsonl").open("a") as file:
            print(json.dumps([report.nodeid, report.outcome, report.duration]), file=file)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Save what was measured: xdist ends its processes without their exit handlers."""
    measuring = Coverage.current()
    if measuring:
        measuring.stop()
        measuring.save()
