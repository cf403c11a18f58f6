"""docs/deploy.md tells every setting as the code has it."""

from __future__ import annotations

import re

import pytest
from weft_deploy.settings_table import BEGIN, END, PAGE, rewritten, table
from weft_gateway.config import Settings


def test_the_page_has_the_table_of_the_code() -> None:
    page = PAGE.read_text()
    assert rewritten(page) == page, "run: python -m weft_deploy.settings_table"


def test_every_setting_has_a_row_that_explains_it() -> None:
    rows = re.findall(r"^\| `WEFT_(\w+)` \| (.+?) \| .*\| (.+?) \|$", table(), re.MULTILINE)
    assert [name.lower() for name, _, _ in rows] == list(Settings.model_fields)
    assert all(len(text) > 5 for _, _, text in rows)


@pytest.mark.parametrize(
    "row",
    [
        "| `WEFT_PORT` | `8080` | >= 1, <= 65535 | port to listen on |",
        "| `WEFT_TRACEPARENT_PROGRAMS` | `false` |",
        "| `WEFT_BALANCER` | `locality` |",
        "| `WEFT_REPLICAS` | empty |",
        "| `WEFT_HEALTH_INTERVAL_S` | `2` | > 0.0, <= 300.0 |",
    ],
)
def test_defaults_and_limits_are_as_one_writes_them(row: str) -> None:
    assert row.replace(".0", "") in table().replace(".0", "")


def test_other_text_stays() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert rewritten(page) == f"before\n{BEGIN}\n{table()}\n{END}\nafter\n"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="must be in the page"):
        rewritten(f"{BEGIN} and no end")
