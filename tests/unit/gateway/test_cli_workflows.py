"""`weft explain`: output and errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner
from weft_gateway.cli import app
from weft_run import examples as workflows

runner = CliRunner()


def test_a_workflow_is_explained(tmp_path: Path) -> None:
    workflows.copy(tmp_path)
    files = [str(tmp_path / f"debate.{suffix}") for suffix in ("yaml", "jsonl")]
    shown = runner.invoke(app, ["explain", files[0], "--input", files[1]])
    assert shown.exit_code == 0, shown.output
    # The third row repeats the first question: docs/guides/batch-workflows.md.
    total = "3 rows, 14 requests after rewriting and merging, 21 without; prompts "
    # Text for a file or pipe is not wrapped.
    assert any(len(line) > 80 for line in shown.output.splitlines() if line.startswith(total))


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


@pytest.mark.parametrize("command", ["explain", "run"])
def test_a_workflow_file_that_is_a_loop_of_links_is_an_error(tmp_path: Path, command: str) -> None:
    (tmp_path / "w.yaml").symlink_to(tmp_path / "w.yaml")
    (tmp_path / "rows.jsonl").write_text("{}")
    line = [command, str(tmp_path / "w.yaml"), "--input", str(tmp_path / "rows.jsonl")]
    line += ["--output", str(tmp_path / "out.jsonl")] if command == "run" else []
    shown = runner.invoke(app, line)
    assert shown.exit_code == 2
    assert "Too many levels of symbolic links" in shown.output


GRAPHS = """
from langgraph.graph import START, MessagesState, StateGraph

builder = StateGraph(MessagesState)
builder.add_node("judge", lambda state: {})
builder.add_edge(START, "judge")
paused = builder.compile(interrupt_before=["judge"])
"""


@pytest.mark.slow
def test_langgraph_graphs_are_explained_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graphs_of_cli.py").write_text(GRAPHS)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    shown = runner.invoke(app, ["explain", "graphs_of_cli:builder", "--input", str(rows)])
    assert shown.exit_code == 0, shown.output
    assert "graph  langgraph  requests 1" in shown.output
    assert "not known before the run" in shown.output
    files = ["--input", str(rows), "--output", "out.jsonl"]
    refused = runner.invoke(app, ["run", "graphs_of_cli:paused", *files])
    assert refused.exit_code == 2
    assert "without interrupt_before and interrupt_after (judge)" in refused.output
