"""The examples of batch workflows on `weft up` with fake engines."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stack import free_port, until
from support.waiting import RUN_S
from weft_run import examples as workflows

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
]

LAUNCHER = Path(__file__).parents[1] / "support" / "up_with_fakes.py"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, log = free_port(), tmp_path_factory.mktemp("up") / "log"
    with log.open("w") as output:
        up = subprocess.Popen(
            [sys.executable, str(LAUNCHER), str(port), str(log.parent), "127.0.0.1"],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        until(lambda: "Ctrl-C" in log.read_text() or up.poll() is not None, "no stack")
        yield f"http://127.0.0.1:{port}"
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(RUN_S)


@pytest.mark.parametrize("name", ["map_reduce", "debate", "text_to_sql"])
def test_an_example_runs(gateway: str, tmp_path: Path, name: str) -> None:
    made = workflows.copy(tmp_path)
    assert {"shop.db", f"{name}.yaml", f"{name}.jsonl"} <= {path.name for path in made}
    assert workflows.copy(tmp_path) == []
    command = [sys.executable, "-m", "weft_gateway.cli", "run", f"{name}.yaml"]
    command += ["--input", f"{name}.jsonl", "--output", "out.jsonl", "--gateway", gateway]
    command += ["--connection", "default=shop.db", "--analyze"]
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, env=wide
    )
    unmet = name == "text_to_sql"
    assert done.returncode == (4 if unmet else 0), done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["row"] for row in rows] == [0, 1, 2]
    codes = [row["error"] and row["error"]["code"] for row in rows]
    assert codes == [("unmet" if unmet else None)] * 3
    if name == "map_reduce":
        assert rows[0]["facts"] == ["I am fake."] * 3
        assert rows[0]["report"] == "I am fake."
    if name == "debate":
        # Operator, executions, failures, calls, ...
        table = [line.split("│") for line in done.stderr.splitlines() if "│" in line]
        assert sum(int(line[2]) for line in table) == 21
        # The calls, and in brackets their prediction.
        figures = [re.findall(r"\d+", line[4]) for line in table]
        assert [sum(int(one[at]) for one in figures) for at in (0, 1)] == [14, 14]
    if unmet:
        # The fake engine writes no SQL: the error of the last round is the result.
        assert "syntax error" in rows[0]["attempt"]["result"]["error"]


def test_the_guide_shows_the_shipped_workflow(tmp_path: Path) -> None:
    workflows.copy(tmp_path)
    guide = Path(__file__).parents[2] / "docs/guides/batch-workflows.md"
    shown = (tmp_path / "map_reduce.yaml").read_text().partition("\n")[2]
    assert "".join(f"    {line}\n" for line in shown.splitlines()) in guide.read_text()
