"""Mutants: each is a wrong change of one statement, stored as text, so that moved and renamed
modules keep it. A statement's text is that of `ast.unparse`, without the bodies of `if` and `for`.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
    ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
BODIES = ("body", "orelse", "handlers", "finalbody", "cases")


class Place(NamedTuple):
    """A function of the product that contains a statement. `lines` are those of the statement."""

    path: Path
    module: str
    function: str
    lines: range


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield (qualified name, node) of all functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | Function):
            if isinstance(node, Function):
                yield prefix + node.name, node
            yield from functions(node, f"{prefix}{node.name}.")
        else:
            yield from functions(node, prefix)


def statements(node: ast.AST) -> Iterator[tuple[list[ast.stmt], int]]:
    """Yield (list, index) of each statement of a function. Nested functions have their own."""
    for field in BODIES:
        for index, child in enumerate(found := getattr(node, field, [])):
            if isinstance(child, ast.stmt):
                yield found, index
            if not isinstance(child, ast.ClassDef | Function):
                yield from statements(child)


def head(statement: ast.stmt) -> ast.stmt:
    """Return the statement without its bodies."""
    short = copy.copy(statement)
    for field in BODIES:
        if hasattr(short, field):
            setattr(short, field, [ast.Pass()] if field == "body" else [])
    return short


def text(statement: ast.stmt) -> str:
    """Return the text of a statement without its bodies; empty if it is never changed."""
    unchanged = ast.ClassDef | Function | ast.Try | ast.Match | ast.AnnAssign
    return "" if isinstance(statement, unchanged) else ast.unparse(head(statement))


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the wrong forms of a node."""
    match node:
        case ast.Compare(left, [op], right) if type(op) in OPERATORS:
            yield ast.Compare(left, [OPERATORS[type(op)]()], right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(OPERATORS[type(op)](), values)
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            if not any(
                isinstance(side, ast.JoinedStr)
                or isinstance(getattr(side, "value", 0), str | bytes)
                for side in (left, right)
            ):
                yield ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            negated = copy.copy(node)
            negated.test = ast.UnaryOp(ast.Not(), test)  # type: ignore[attr-defined]
            yield negated
        case ast.Return(value) if value and getattr(value, "value", 0) is not None:
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]) | ast.Continue() | ast.Break():
            yield ast.Pass()


def changes(statement: ast.stmt) -> Iterator[str]:
    """Yield the texts of all wrong forms of a statement."""
    short = head(statement)
    for node in ast.walk(short):
        for wrong in variants(node):
            right = type(node), vars(node)
            node.__class__, node.__dict__ = type(wrong), vars(wrong)
            yield ast.unparse(short)
            node.__class__, node.__dict__ = right


def draw(root: Path, files: Iterable[Path], without: str, count: int, seed: int) -> list[dict]:
    """Return `count` mutants of as many functions. `without` matches the names of functions
    (module:name) that are left out."""
    possible = []
    for path in sorted(files):
        module = module_name(root, path)
        for function, node in functions(ast.parse(path.read_text(encoding="utf-8"))):
            if not re.search(without, f"{module}:{function}"):
                found: list[dict] = []
                for body, index in statements(node):
                    if before := text(body[index]):
                        nth = len({m["at"] for m in found if m["before"] == before})
                        found += [
                            {"at": (id(body), index), "nth": nth, "before": before, "after": after}
                            for after in changes(body[index])
                        ]
                if found:
                    possible.append((module, function, found))
    chance = random.Random(seed)
    sample = []
    for module, function, found in sorted(chance.sample(possible, count), key=lambda one: one[:2]):
        chosen = {**chance.choice(found), "module": module, "function": function}
        sample.append(
            {key: chosen[key] for key in ("module", "function", "nth", "before", "after")}
        )
    return sample


def module_name(root: Path, path: Path) -> str:
    """Return the dotted name of a module, without its source root."""
    parts = path.relative_to(root).with_suffix("").parts[1:]
    return ".".join(parts).removesuffix(".__init__")


class Index:
    """Finds the statements of mutants in the functions of the product."""

    def __init__(self, root: Path, files: Iterable[Path]) -> None:
        self._places: dict[str, list[Place]] = {}
        self.names: set[str] = set()
        for path in files:
            module = module_name(root, path)
            for function, node in functions(ast.parse(path.read_text(encoding="utf-8"))):
                self.names.add(function)
                for body, index in statements(node):
                    one = body[index]
                    inner = getattr(one, "body", None)
                    end = inner[0].lineno if inner else (one.end_lineno or 0) + 1
                    lines = range(one.lineno, max(end, one.lineno + 1))
                    self._places.setdefault(text(one), []).append(
                        Place(path, module, function, lines)
                    )

    def find(self, mutant: dict) -> Place | None:
        """Return the place of a mutant: the same function, or the only one that resembles it."""
        name, module = mutant["function"], mutant["module"]
        ranked: dict[int, list[Place]] = {}
        for place in self._places.get(mutant["before"], []):
            stem = place.module.rpartition(".")[2] == module.rpartition(".")[2]
            last = place.function.rpartition(".")[2] == name.rpartition(".")[2]
            if place.function == name:
                rank = 0 if place.module == module else 1 if stem else 2
            else:
                rank = 3 if last and stem else 4 if last else 5
            ranked.setdefault(rank, []).append(place)
        best = ranked.get(min(ranked, default=0), [])
        if len({(place.path, place.function) for place in best}) != 1:
            return None
        return best[min(mutant["nth"], len(best) - 1)]


def mutated(place: Place, mutant: dict) -> str:
    """Return the text of the module with the mutant."""
    tree = ast.parse(place.path.read_text(encoding="utf-8"))
    node = dict(functions(tree))[place.function]
    for body, index in statements(node):
        old = body[index]
        if text(old) == mutant["before"] and old.lineno == place.lines.start:
            new = ast.parse(mutant["after"]).body[0]
            for field in BODIES:
                if hasattr(old, field) and hasattr(new, field):
                    setattr(new, field, getattr(old, field))
            body[index] = new
            return ast.unparse(ast.fix_missing_locations(tree))
    raise LookupError(mutant["before"])
