"""A missed goal is named and is the exit status; the results page shows the same tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from weft_bench.report.page import conclude, markdown

TABLE = {"title": "times", "labels": 1, "columns": ["what", "s"], "rows": [["it", "3"]]}


@pytest.mark.parametrize("missed", [[], ["it: 3 s, above 2 s"]])
def test_missed_goals_are_named_and_give_the_exit_status(
    missed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results" / "x.json"
    cells = [{"what": "it", "s": 3}]
    status = conclude("weft bench x --a 1", "X", "real", [TABLE], cells, missed, str(file))
    assert status == len(missed)
    out, error = capsys.readouterr()
    assert "times" in out
    assert ("weft bench x: missed: it: 3 s, above 2 s" in error) is bool(missed)
    found = json.loads(file.read_text())
    assert found["cells"] == cells
    page = markdown(found)
    assert re.search(r"\| it +\| +3 \|", page)
    assert ("- missed: it" in page) is bool(missed)
