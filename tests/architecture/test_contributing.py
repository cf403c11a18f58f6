"""The examples of CONTRIBUTING.md run."""

from __future__ import annotations

import re

import pytest
from support.sources import ROOT

EXAMPLES = re.findall(
    r"^### (.+?)\n.*?^```python\n(.*?)^```",
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)


def test_each_kind_of_extension_has_an_example() -> None:
    kinds = [title for title, _ in EXAMPLES]
    assert kinds == ["An order", "A balancer", "An observer", "A study"]


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_an_example_runs(title: str, code: str) -> None:
    exec(compile(code, f"CONTRIBUTING.md: {title}", "exec"), {"__name__": "__main__"})
