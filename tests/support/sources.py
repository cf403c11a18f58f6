"""The project's source files, for the architecture tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway", "engine_patches", "kernels", "loadgen", "deploy")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sources(*tops: str) -> list[Path]:
    """Return every Python file under the top-level folders, relative to the checkout."""
    return sorted(file.relative_to(ROOT) for top in tops for file in (ROOT / top).rglob("*.py"))


@cache
def tree(file: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), str(file))


def imported(file: Path) -> set[str]:
    """Return the absolute names of all modules that a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


def public_definitions(file: Path) -> Iterator[tuple[str, Documented]]:
    """Yield (name, node) of a module and of each public class, function and method in it."""
    module = tree(file)
    yield "the module", module
    for node in module.body:
        if _is_public(node):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for member in node.body:
                    if _is_public(member) and not isinstance(member, ast.ClassDef):
                        yield f"{node.name}.{member.name}", member


def _is_public(node: ast.AST) -> bool:
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, definitions) and not node.name.startswith("_")
