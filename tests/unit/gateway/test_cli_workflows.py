"""`weft explain`: output and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner
from weft.examples import workflows
from weft_gateway.cli import app

runner = CliRunner()


def test_a_workflow_is_explained(tmp_path: Path) -> None:
    workflows.copy(tmp_path)
    files = [str(tmp_path / f"debate.{suffix}") for suffix in ("yaml", "jsonl")]
    shown = runner.invoke(app, ["explain", files[0], "--input", files[1]])
    assert shown.exit_code == 0, shown.output
    # The third row repeats the first question: docs/guides/batch-workflows.md.
    assert "3 rows, 14 requests after rewriting and merging, 21 without" in shown.output


@pytest.mark.parametrize(
    ("workflow", "rows", "reason"),
    [
        ("weft: 2", "{}", "w.yaml:1:1: weft: "),
        ("{weft: 1, inputs: {q: str}, ops: {a: {format: x}}, outputs: {o: a}}", "{}", "'q'"),
        ("{weft: 1, ops: {a: {format: x}}, outputs: {o: a}}", None, "No such file"),
    ],
)
def test_invalid_input_is_an_error(
    tmp_path: Path, workflow: str, rows: str | None, reason: str
) -> None:
    (tmp_path / "w.yaml").write_text(workflow)
    if rows is not None:
        (tmp_path / "rows.jsonl").write_text(rows)
    files = str(tmp_path / "w.yaml"), str(tmp_path / "rows.jsonl")
    shown = runner.invoke(app, ["explain", files[0], "--input", files[1]])
    assert shown.exit_code == 2
    assert reason in shown.output
