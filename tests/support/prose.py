"""Extracts prose from the project's files: comments, docstrings, messages, test names and pages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from support.sources import PACKAGES, ROOT, sources, tree

TOPS = (*PACKAGES, "tests", "docs")
# Files outside these folders, and files other than Python and Markdown.
OTHERS = ("*.md", "Makefile", "Dockerfile", "*.yml", "*.toml", "deploy/*.yml", "deploy/*/*.yml")
OPTIONS = {"help", "description", "epilog", "short_help"}
LOGS = {"debug", "info", "warning", "error", "exception", "critical", "warn", "skip"}
# Fenced code, inline code, and link targets.
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)

Prose = Iterator[tuple[int, str]]


def files() -> list[Path]:
    """Return every file with prose, relative to the checkout."""
    found = [path for top in TOPS for path in (ROOT / top).rglob("*.md")]
    found += [path for pattern in OTHERS for path in ROOT.glob(pattern)]
    return sorted({*sources(*TOPS), *(path.relative_to(ROOT) for path in found)})


def prose(file: Path) -> Prose:
    """Yield (line, text) of each piece of prose in a file. Each text is on one line."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.suffix == ".md":
        found = _paragraphs(CODE.sub(lambda code: "\n" * code[0].count("\n"), text).splitlines())
    elif file.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
        found = iter((*_joined(comments), *_strings(tree(file))))
    else:
        lines = enumerate(text.splitlines(), 1)
        found = _joined((number, line.partition("#")[2]) for number, line in lines if "#" in line)
    for number, piece in found:
        yield number, " ".join(piece.split())


def _paragraphs(lines: list[str]) -> Prose:
    yield from _joined((number, line) for number, line in enumerate(lines, 1) if line.strip())


def _joined(lines: Iterable[tuple[int, str]]) -> Prose:
    """Join the texts of consecutive lines."""
    begin, last, text = 0, -1, ""
    for number, line in lines:
        if number != last + 1:
            yield begin, text
            begin, text = number, ""
        last, text = number, f"{text} {line.strip().removeprefix('#')}".strip()
    yield begin, text


def _strings(module: ast.Module) -> Prose:
    """Yield docstrings, test names, and the strings of errors, log messages and options."""
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            line, name = getattr(node, "lineno", 1), getattr(node, "name", "")
            yield line, ast.get_docstring(node) or ""
            if name.startswith("test_"):
                yield line, name.removeprefix("test_").replace("_", " ")
        called = node.func if isinstance(node, ast.Call) else None
        logs = isinstance(called, ast.Attribute) and called.attr in LOGS
        option = isinstance(node, ast.keyword) and node.arg in OPTIONS
        if isinstance(node, ast.Raise) or logs or option:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value
