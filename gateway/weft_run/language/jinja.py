"""Placeholders of templates: their checks, their compilation, and the cut of a text into them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from jinja2 import TemplateSyntaxError, meta, nodes

from weft_run.language.sandbox import JINJA, MAX_TEXT, NAMES, TemplateError, plain
from weft_run.yaml_errors import close, nearest

__all__ = ["Compiled", "TemplateError", "compiled", "dumped", "pieces"]

_BLOCKS: Final = frozenset({"for", "if"})
_CLOSING: Final = frozenset({"endfor", "endif"})
_CACHED: Final = 4096
# Levels of a syntax tree. Jinja2 and Python refuse more than about 200 in different ways.
_MAX_DEPTH: Final = 100
_TOO_DEEP: Final = "nested too deeply"


@dataclass(frozen=True, slots=True)
class Compiled:
    """One placeholder, compiled. is_expression: whether it is a single `{{ expression }}`."""

    is_expression: bool
    _text: Any
    _value: Any

    def text(self, scope: Mapping[str, Any]) -> str:
        """Render. Raises TemplateError."""
        with _rendering():
            text = str(self._text.render(scope))
            if len(text) > MAX_TEXT:
                raise TemplateError(f"a placeholder makes at most {MAX_TEXT} characters")
            return text

    def value(self, scope: Mapping[str, Any]) -> Any:
        """Return the value of the expression, which is JSON. Raises TemplateError."""
        with _rendering():
            return plain(self._value(scope))


@lru_cache(_CACHED)
def compiled(source: str) -> Compiled:
    """Compile one placeholder. Raises TemplateError."""
    with _template_errors():
        tree = JINJA.parse(source)
        (output,) = tree.body
        value = None
        if isinstance(output, nodes.Output):
            value = JINJA.compile_expression(_inner(source), undefined_to_none=False)
        return Compiled(value is not None, JINJA.from_string(tree), value)


def pieces(source: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Yield (text, None) for constants and (Jinja2 text, free names) for placeholders. Raises
    TemplateError.
    """
    with _template_errors():
        _check(source)
        found = list(_cut(source))
    for text, is_constant in found:
        yield text, None if is_constant else _names(text)


def _names(source: str) -> tuple[str, ...]:
    """Compile a placeholder, and return its free names. Raises TemplateError."""
    compiled(source)
    with _template_errors():
        return tuple(sorted(meta.find_undeclared_variables(JINJA.parse(source))))


@contextmanager
def _template_errors() -> Iterator[None]:
    """Raise TemplateError instead of the errors of Jinja2, and of Python, which compiles what
    Jinja2 makes.
    """
    try:
        yield
    except TemplateSyntaxError as error:
        raise TemplateError(error.message or "not a valid template", error.lineno) from None
    except RecursionError:
        raise TemplateError(_TOO_DEEP) from None
    except SyntaxError as error:
        raise TemplateError(_TOO_DEEP if error.msg.startswith("too many") else error.msg) from None
    except TemplateError:
        raise
    except ValueError as error:
        raise TemplateError(str(error)) from None


def dumped(source: str, references: Mapping[str, Any]) -> Any:
    """Return the syntax tree of a placeholder as JSON, with free names replaced by what they stand
    for.
    """
    tree = JINJA.parse(source)
    local = {one.name for one in tree.find_all(nodes.Name) if one.ctx != "load"}
    if local & references.keys():
        # One name has two meanings: the tree with replaced names would be ambiguous.
        return {"source": source, "names": dict(references)}

    def dump(node: Any) -> Any:
        if isinstance(node, nodes.Name) and node.name in references:
            return {"name": references[node.name]}
        if isinstance(node, nodes.Node):
            return [type(node).__name__, *(dump(value) for _, value in node.iter_fields())]
        return [dump(one) for one in node] if isinstance(node, list | tuple) else node

    return dump(tree.body)


_REFUSED: Final[dict[type[nodes.Node], str]] = {
    nodes.Assign: "set", nodes.AssignBlock: "set", nodes.Macro: "macro", nodes.Import: "import",
    nodes.FromImport: "import", nodes.Include: "include", nodes.Extends: "extends",
    nodes.Block: "block", nodes.CallBlock: "call", nodes.FilterBlock: "filter", nodes.With: "with",
    nodes.ScopedEvalContextModifier: "autoescape",
}  # fmt: skip


# Half of a surrogate pair: neither UTF-8 nor JSON can contain it.
_HALF: Final = re.compile("[\ud800-\udfff]")


def _check(source: str) -> None:
    for node, depth in _nodes(JINJA.parse(source)):
        if depth > _MAX_DEPTH:
            raise TemplateError(_TOO_DEEP, node.lineno)
        word = _REFUSED.get(type(node))
        if word is not None:
            raise TemplateError(
                f"'{word}' is not allowed in templates; allowed are for, if and raw", node.lineno
            )
        if isinstance(node, nodes.Name) and node.name == "self":
            # Jinja2's own name for the template.
            raise TemplateError("'self' has no value in templates", node.lineno)
        text = node.value if isinstance(node, nodes.Const) else getattr(node, "data", "")
        if isinstance(text, str) and _HALF.search(text):
            raise TemplateError("half of a surrogate pair is no character", node.lineno)
        if isinstance(node, nodes.Filter) and node.name not in JINJA.filters:
            hint = nearest(node.name or "", NAMES)
            raise TemplateError(f"no filter is named {node.name!r}{hint}", node.lineno)
        called = node.node if isinstance(node, nodes.Call) else None
        # `loop` of a recursive `for` is a function.
        if isinstance(called, nodes.Name) and called.name != "loop":
            hint = close(called.name, NAMES)
            what = f"no function is named {called.name!r}; templates have filters: x | name{hint}"
            raise TemplateError(what, node.lineno)


def _nodes(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """Yield the nodes below a tree, and their depths."""
    left = [(tree, 0)]
    while left:
        node, depth = left.pop()
        inner = [(one, depth + 1) for one in node.iter_child_nodes()]
        yield from inner
        left += inner


def _cut(source: str) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether it is constant). Blocks stay whole; `{{x}}` becomes `{{ x }}`."""
    depth, piece, begun = 0, "", False
    tokens = list(JINJA.lexer.tokeniter(source, None))
    for index, (_, kind, text) in enumerate(tokens):
        if kind.startswith("comment"):
            continue
        if not depth and not begun and kind in ("data", "raw_begin", "raw_end"):
            if kind == "data":
                yield text, True
            continue
        if not depth and kind == "variable_begin":
            text = "{{"
        elif not depth and kind == "variable_end":
            piece, text = f"{{{{ {piece[2:].strip()}", " }}"
        begun = True
        piece += text
        if kind == "block_begin":
            word = next(word for _, one, word in tokens[index:] if one == "name")
            depth += (word in _BLOCKS) - (word in _CLOSING)
        if kind in ("variable_end", "block_end") and not depth:
            yield piece, False
            piece, begun = "", False


def _inner(source: str) -> str:
    return source[2:-2]


@contextmanager
def _rendering() -> Iterator[None]:
    """Raise TemplateError instead of any other error: templates run the user's expressions on the
    user's data.
    """
    try:
        yield
    except TemplateError:
        raise
    except MemoryError:
        raise TemplateError("it needs too much memory") from None
    except Exception as error:
        raise TemplateError(str(error) or type(error).__name__) from None
