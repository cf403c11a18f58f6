"""Only the adapter, `engine_patches/weft_engine/compat*.py`, names parts of vLLM.

`tests/engine/test_contract.py` holds that vLLM has the names that stand there.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.sources import ROOT, sources

PLUGIN = [file for file in sources("engine_patches") if not file.name.startswith("compat")]


def imports(tree: ast.AST) -> list[str]:
    """The modules of vLLM that are imported, inside functions too."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    return [name for name in found if name.partition(".")[0] == "vllm"]


def private_names(tree: ast.AST) -> list[str]:
    """Private attributes of anything but `self` and `cls`, and not of the module's own."""
    own = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    } | {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in own
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


@pytest.mark.parametrize("file", PLUGIN, ids=str)
def test_only_the_adapter_names_vllm_s_modules_and_private_attributes(file: Path) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert not imports(tree)
    assert not private_names(tree)


def test_what_is_looked_for_is_found() -> None:
    tree = ast.parse("def f():\n    from vllm.v1 import x\n    return a.b._c, self._d, a.__doc__")
    assert imports(tree) == ["vllm.v1"]
    assert private_names(tree) == ["a.b._c"]
