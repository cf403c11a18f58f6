"""The sandbox of templates: Jinja2's, on JSON values, without what depends on time or chance.

Expressions reach no internals of Python, and change no values. Their time and memory are limited by
the process: see `weft_run.limited`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import wraps
from math import isfinite
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined, nodes, pass_environment
from jinja2.filters import make_attrgetter
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

# Characters of one text.
MAX_TEXT: Final = 16_777_216
# Levels of a value. A row has at most 100, and is one itself.
_MAX_LEVELS: Final = 99
# A filter in place of `~`. Templates cannot write its name.
_CONCAT: Final = "weft concat"
# Filters that make a text of any value.
_OF_TEXTS: Final = (
    "capitalize", "center", "indent", "lower", "replace", "title", "trim", "truncate", "upper",
    "wordcount", "wordwrap",
)  # fmt: skip


class TemplateError(ValueError):
    """A template is invalid, or cannot be rendered. line: 1-based line within the template."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


def plain(value: Any, level: int = 0) -> Any:
    """Return a value as JSON: iterators become lists. Raises TemplateError."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str | Undefined):
        return _text(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise TemplateError(f"the number {value} is not JSON")
        return value
    if level == _MAX_LEVELS:
        raise TemplateError(f"the value is nested too deeply; at most {_MAX_LEVELS} levels")
    if isinstance(value, dict):
        return {_key(key): plain(one, level + 1) for key, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | LoopContext):
        return [plain(one, level + 1) for one in value]
    raise TemplateError(f"a value of type {type(value).__name__!r} is not JSON")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    if key is not None and not isinstance(key, int | float):
        raise TemplateError(f"a key of type {type(key).__name__!r} is not JSON")
    return json.dumps(key)


def shown(value: Any) -> str:
    """Return how a value appears in a text: lists and mappings as JSON, None as an empty text.
    Raises TemplateError.
    """
    if isinstance(value, str):
        return _text(value)
    return "" if value is None else _as_json(value)


def _text(value: Any) -> str:
    """Return a text. Raises the error of a missing value, and one for half a surrogate pair."""
    text = str(value)
    if not text.isascii():
        text.encode()
    return text


def _as_json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


class _Values(NodeTransformer):
    """Lets `~` join values as they appear in a text, and `.name` read keys, unless it is called."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        first, *rest = node.nodes
        place = {"lineno": node.lineno, "environment": node.environment}
        return nodes.Filter(first, _CONCAT, rest, [], None, None, **place)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        method = node.node
        self.generic_visit(node)
        if isinstance(method, nodes.Getattr):
            node.node = method
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
        self.generic_visit(node)
        place = {"lineno": node.lineno, "environment": node.environment}
        return nodes.Getitem(node.node, nodes.Const(node.attr), node.ctx, **place)


class _Environment(ImmutableSandboxedEnvironment):
    def _generate(self, source: nodes.Template, *arguments: Any, **named: Any) -> str:
        return super()._generate(_Values().visit(source), *arguments, **named)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return the value of a key or index, or a property of `loop` or of a group of
        `groupby`: a method is no value.
        """
        found = super().getitem(obj, argument)
        if callable(found) and not isinstance(found, Undefined):
            return self.undefined(obj=obj, name=argument)
        return found


def _of_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that takes any value as it appears in a text."""
    at = int(hasattr(function, "jinja_pass_arg"))

    @wraps(function)
    def filtered(*arguments: Any, **named: Any) -> Any:
        return function(*arguments[:at], shown(arguments[at]), *arguments[at + 1 :], **named)

    return filtered


@pass_environment
def _join(environment: Any, items: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        items = map(make_attrgetter(environment, attribute), items)
    return shown(d).join(map(shown, items))


def _environment() -> _Environment:
    environment = _Environment(
        optimized=False,
        undefined=StrictUndefined,
        finalize=shown,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.globals.clear()
    filters = environment.filters
    del filters["random"]
    filters.update({name: _of_text(filters[name]) for name in _OF_TEXTS})
    filters.update({
        "join": _join, "string": shown, "tojson": _as_json,
        _CONCAT: lambda *values: "".join(map(shown, values)),
    })  # fmt: skip
    return environment


JINJA: Final = _environment()
NAMES: Final = tuple(sorted(name for name in JINJA.filters if name != _CONCAT))
