"""Files are small, public names are documented, and nothing is unfinished."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.sources import PACKAGES, ROOT, public_definitions, sources

LONGEST = 400
FILES = sources(*PACKAGES)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
# What asyncio, httptools and uvicorn call; documented there.
CALLBACK = re.compile(
    r"\.(connection_(made|lost)|data_received|eof_received|(pause|resume)_writing"
    r"|on_(message_begin|url|status|header|headers_complete|body|message_complete|response_complete)"
    r"|timeout_keep_alive_handler)$"
)


@pytest.mark.parametrize("file", [*FILES, *sources("tests")], ids=str)
def test_a_file_is_not_too_long(file: Path) -> None:
    lines = len((ROOT / file).read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{lines} lines: one concept a file"


@pytest.mark.parametrize("file", FILES, ids=str)
def test_public_names_are_documented(file: Path) -> None:
    without = [
        name
        for name, node in public_definitions(file)
        if not ast.get_docstring(node) and not CALLBACK.search(name)
    ]
    assert not without


@pytest.mark.parametrize("file", FILES, ids=str)
def test_nothing_is_left_for_later(file: Path) -> None:
    found = UNFINISHED.search((ROOT / file).read_text(encoding="utf-8"))
    assert found is None, found
