"""Only the adapters use internal names of vLLM: the files `compat*.py` of the plugin.

`tests/engine/test_contract.py` and `test_emulated_contract.py` check that vLLM has these names.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.sources import ROOT, sources

PLUGIN = [file for file in sources("engine_patches") if not file.name.startswith("compat")]


def imports(tree: ast.AST) -> list[str]:
    """Return the imported modules of vLLM, including imports inside functions."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    return [name for name in found if name.partition(".")[0] == "vllm"]


def private_names(tree: ast.AST) -> list[str]:
    """Return private attributes of objects other than `self` and `cls`.

    Attributes that the module defines itself are left out.
    """
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
def test_only_the_adapter_uses_modules_and_private_attributes_of_vllm(file: Path) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert not imports(tree)
    assert not private_names(tree)


def test_the_search_finds_imports_and_private_attributes() -> None:
    tree = ast.parse("def f():\n    from vllm.v1 import x\n    return a.b._c, self._d, a.__doc__")
    assert imports(tree) == ["vllm.v1"]
    assert private_names(tree) == ["a.b._c"]
