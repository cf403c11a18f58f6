"""The table of `weft run --analyze`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft_run.cli import _analyze
from weft_run.plan.commands import Usage


def _counts(calls: int) -> Any:
    return SimpleNamespace(
        done=calls, failed=0, calls=calls, merged=0, cached=0, usage=Usage(10, 0, 1)
    )


def test_cases_of_a_branch_have_no_single_prediction(capsys: Any) -> None:
    guess = SimpleNamespace(requests=6, prompt=60, cached=0, output=6)
    plan = SimpleNamespace(tallies={"a": guess, "b": guess}, requests=9)
    _analyze({"a": _counts(6), "b": _counts(3), "b[1]": _counts(3)}, plan, 1.0)
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    cells = {line[1]: line for line in lines if len(line) > 2 and line[1] in ("a", "b", "b[1]")}
    assert "(6)" in cells["a"]
    assert not any("(" in cell for name in ("b", "b[1]") for cell in cells[name])
