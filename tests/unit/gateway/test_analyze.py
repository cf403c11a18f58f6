"""The table of `weft run --analyze`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft_run.cli import _analyze
from weft_run.plan.commands import Usage
from weft_run.plan.dispatch import Counts


def _counts(calls: int) -> Counts:
    return Counts(done=calls, calls=calls, usage=Usage(10, 0, 1))


def test_each_case_of_a_branch_has_its_prediction(capsys: Any) -> None:
    plan = SimpleNamespace(counts={"a": _counts(6), "a[1]": _counts(2)}, requests=8)
    _analyze({"a": _counts(5), "a[1]": _counts(3), "a[2]": _counts(1)}, plan, 1.0)
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    cells = {line[1]: " ".join(line) for line in lines if len(line) > 2}
    assert "5 (6)" in cells["a"]
    assert "3 (2)" in cells["a[1]"]
    assert "(" not in cells["a[2]"]
