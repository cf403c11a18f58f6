"""The Jinja2 of templates: a sandbox with an allow-list of filters, and the cut into pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateSyntaxError, Undefined, meta, nodes, pass_context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from weft_gateway.marks import close, nearest
from weft_gateway.workflows.meter import EACH, METER, Meter, TemplateError, each, meter_of, metered

__all__ = ["Compiled", "TemplateError", "compiled", "dumped", "pieces", "shown"]

# The longest text or list that one `*` may make, the largest exponent of `**`, and the bits of a
# product or power.
_MAX_PRODUCT: Final = 1_000_000
_MAX_EXPONENT: Final = 64
_MAX_BITS: Final = 4096
# Deterministic filters. Those with a width (`center`, `format`) could make texts of any size.
_FILTERS: Final = (
    "abs", "capitalize", "count", "default", "dictsort", "first", "float", "groupby", "int",
    "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "replace", "reverse", "round", "select", "selectattr", "slice", "sort", "string",
    "sum", "title", "trim", "truncate", "unique", "upper", "wordcount", "wordwrap",
)  # fmt: skip
_NAMES: Final = (*_FILTERS, "tojson")
_BLOCKS: Final = frozenset({"for", "if"})
_CLOSING: Final = frozenset({"endfor", "endif"})
_CACHED: Final = 4096
# Levels of a syntax tree. Jinja2 and Python refuse more than about 200 in different ways.
_MAX_DEPTH: Final = 100
_TOO_DEEP: Final = "nested too deeply"


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse operations whose result can be very large."""
        if operator == "+":
            for one in (left, right):
                if isinstance(one, str | list | tuple):
                    meter_of(context).take(one)
        if operator == "%" and isinstance(left, str):
            raise TemplateError("'%' formats no text in templates; use '~' to join texts")
        if operator == "**" and not (_is_number(right) and abs(right) <= _MAX_EXPONENT):
            raise TemplateError(f"exponents are at most {_MAX_EXPONENT}")
        if operator != "%" and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else _bits(left, right)
            if bits > _MAX_BITS:
                raise TemplateError(f"numbers have at most {_MAX_BITS} bits")
        if operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(one, str | list | tuple) and isinstance(times, int):
                    size = len(one) * times
                    if size > _MAX_PRODUCT:
                        raise TemplateError(f"'*' makes at most {_MAX_PRODUCT} characters or items")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method within the limits of a rendering."""
        meter_of(__context).call(__obj, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Any:
        """Make no exception for `format`, so that `is_safe_attribute` decides."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Values are JSON; only texts and mappings have methods, without those with a width."""
        if callable(value) and (not isinstance(obj, str | dict) or attr in _REFUSED_METHODS):
            return False
        return super().is_safe_attribute(obj, attr, value)


# Methods with a width could make texts of any size, and so could `translate`, which also makes
# characters that are no Unicode text. Bytes are not JSON.
_REFUSED_METHODS: Final = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate",
     "maketrans", "encode"}
)  # fmt: skip


def _bits(left: int, right: int) -> int:
    return left.bit_length() + right.bit_length()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def shown(value: Any) -> Any:
    """Return how a value appears in a text: lists and mappings as JSON, None as an empty text."""
    if isinstance(value, str | Undefined):
        return value
    return "" if value is None else _as_json(value)


@pass_context
def _finalized(context: Any, value: Any) -> Any:
    found = shown(value)
    if isinstance(found, str):
        meter_of(context).text(len(found))
    return found


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _environment() -> _Environment:
    environment = _Environment(
        undefined=StrictUndefined, finalize=_finalized, keep_trailing_newline=True, autoescape=False
    )
    environment.globals.clear()
    kept = {name: environment.filters[name] for name in _FILTERS} | {"tojson": _as_json}
    environment.filters.clear()
    environment.filters.update({name: metered(name, one) for name, one in kept.items()})
    environment.filters[EACH] = each
    return environment


_JINJA: Final = _environment()


@dataclass(frozen=True, slots=True)
class Compiled:
    """One placeholder, compiled. is_expression: whether it is a single `{{ expression }}`."""

    is_expression: bool
    _text: Any
    _value: Any

    def text(self, scope: Mapping[str, Any]) -> str:
        """Render. Raises TemplateError."""
        try:
            return str(self._text.render(scope, **{METER: Meter()}))
        except TemplateError:
            raise
        except Exception as error:  # Templates run the user's expressions on the user's data.
            raise TemplateError(_reason(error)) from None

    def value(self, scope: Mapping[str, Any]) -> Any:
        """Return the value of the expression. Raises TemplateError."""
        try:
            found = self._value(scope, **{METER: Meter()})
        except TemplateError:
            raise
        except Exception as error:
            raise TemplateError(_reason(error)) from None
        if isinstance(found, Undefined):
            raise TemplateError(found._undefined_message)
        return found


@lru_cache(_CACHED)
def compiled(source: str) -> Compiled:
    """Compile one placeholder. Raises TemplateError."""
    with _template_errors():
        tree = _JINJA.parse(source)
        (output,) = tree.body
        value = None
        if isinstance(output, nodes.Output):
            value = _JINJA.compile_expression(_inner(source), undefined_to_none=False)
        for loop in tree.find_all(nodes.For):
            constant = sum(len(one.data) for one in loop.find_all(nodes.TemplateData))
            loop.iter = nodes.Filter(loop.iter, EACH, [nodes.Const(constant)], [], None, None)
        return Compiled(value is not None, _JINJA.from_string(tree), value)


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
        return tuple(sorted(meta.find_undeclared_variables(_JINJA.parse(source))))


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
    tree = _JINJA.parse(source)
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
    for node, depth in _nodes(_JINJA.parse(source)):
        if depth > _MAX_DEPTH:
            raise TemplateError(_TOO_DEEP, node.lineno)
        word = _REFUSED.get(type(node))
        if word is not None:
            raise TemplateError(
                f"'{word}' is not allowed in templates; allowed are for, if and raw", node.lineno
            )
        text = node.value if isinstance(node, nodes.Const) else getattr(node, "data", "")
        if isinstance(text, str) and _HALF.search(text):
            raise TemplateError("half of a surrogate pair is no character", node.lineno)
        if isinstance(node, nodes.Filter) and node.name not in _JINJA.filters:
            hint = nearest(node.name or "", _NAMES)
            raise TemplateError(f"no filter is named {node.name!r}{hint}", node.lineno)
        called = node.node if isinstance(node, nodes.Call) else None
        # `loop` of a recursive `for` is a function.
        if isinstance(called, nodes.Name) and called.name != "loop":
            hint = close(called.name, _NAMES)
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
    tokens = list(_JINJA.lexer.tokeniter(source, None))
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


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
