"""The pages of docs/reference are up to date."""

from __future__ import annotations

import re

import pytest
from weft_deploy.reference import FOLDER, PAGES, http_api, metrics, settings
from weft_gateway.config import Settings


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run: make generate"


def test_every_setting_has_a_row_with_its_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.+?) \|$", settings(), re.MULTILINE)
    variables = [f"WEFT_{name.upper()}" for name in Settings.model_fields]
    assert sorted(name for name, _ in rows if name.startswith("WEFT_")) == sorted(variables)
    assert all(len(text) > 5 for _, text in rows)
    assert "| `WEFT_PORT` | `8080` | >= 1, <= 65535 |" in settings()
    assert "| `WEFT_REPLICAS` | empty |" in settings()


@pytest.mark.parametrize("path", ["POST /v1/chat/completions", "GET /health", "POST /v1/sessions"])
def test_both_kinds_of_endpoints_are_listed(path: str) -> None:
    assert f"## `{path}`" in http_api()


def test_series_have_their_labels() -> None:
    assert "| `weft_calls_total` | counter | `endpoint`, `outcome`, `replica` |" in metrics()
    assert "| `weft_engine_waiting` | gauge | `engine`, `queue` |" in metrics()
