"""All calls take one path: one place in the code places, opens and closes them."""

from __future__ import annotations

import ast

import pytest
from support.sources import ROOT, sources

FILES = [*sources("gateway/weft_gateway/calls"), *sources("gateway/weft_gateway/api")]


def callers(method: str) -> list[str]:
    """Return the functions that call a method of this name, as `file:function`."""
    found = []
    for file in FILES:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [
                    f"{file.name}:{function.name}"
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == method
                ]
    return found


@pytest.mark.parametrize(
    ("method", "places"),
    [
        ("open_call", ["lifecycle.py:open"]),
        ("close_call", ["lifecycle.py:_write_once"]),
        # Only the end of its context closes a call.
        ("_close", ["lifecycle.py:__aexit__"]),
    ],
)
def test_calls_open_and_close_in_one_place(method: str, places: list[str]) -> None:
    assert callers(method) == places


def test_one_module_places_calls() -> None:
    assert {place.partition(":")[0] for place in callers("route")} == {"placement.py"}


@pytest.mark.parametrize(
    ("step", "part"), [("place", "placement"), ("open", "lifecycle"), ("send", "engines")]
)
def test_chat_and_prefill_take_the_same_steps(step: str, part: str) -> None:
    step = f"self.{part}.{step}("
    users = {file.name for file in FILES if step in (ROOT / file).read_text(encoding="utf-8")}
    assert users == {"path.py", "prefills.py"}
