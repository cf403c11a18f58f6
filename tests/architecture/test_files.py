"""Public names have docstrings, and no code is marked as unfinished."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.sources import PACKAGES, ROOT, public_definitions, sources

FILES = sources(*PACKAGES)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
# Callbacks of asyncio, httptools and uvicorn, which document them.
CALLBACK = re.compile(
    r"\.(connection_(made|lost)|data_received|eof_received|(pause|resume)_writing"
    r"|on_(message_begin|url|status|header|headers_complete|body|message_complete|response_complete)"
    r"|timeout_keep_alive_handler)$"
)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_public_names_have_docstrings(file: Path) -> None:
    without = [
        name
        for name, node in public_definitions(file)
        if not ast.get_docstring(node) and not CALLBACK.search(name)
    ]
    assert not without


@pytest.mark.parametrize("file", FILES, ids=str)
def test_no_code_is_marked_as_unfinished(file: Path) -> None:
    found = UNFINISHED.search((ROOT / file).read_text(encoding="utf-8"))
    assert found is None, found
