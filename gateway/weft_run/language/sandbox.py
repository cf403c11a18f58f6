"""The sandbox of templates: Jinja2 with an allow-list of filters, on JSON values, within the limits
of a rendering.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined, nodes, pass_context
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import object_type_repr
from jinja2.visitor import NodeTransformer

from weft_run.language.meter import (
    OWN_FILTERS,
    OWN_TESTS,
    TemplateError,
    check_bits,
    join,
    meter_of,
    metered,
    replace,
)

__all__ = ["JINJA", "NAMES"]

# The longest text or list that one `*` may make, and the largest exponent of `**`.
_MAX_PRODUCT: Final = 1_000_000
_MAX_EXPONENT: Final = 64
# Deterministic filters. Those with a width (`center`, `format`) could make texts of any size, and
# `wordwrap` takes quadratic time.
_FILTERS: Final = (
    "abs", "capitalize", "count", "default", "dictsort", "first", "float", "groupby", "int",
    "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr",
    "reverse", "round", "select", "selectattr", "slice", "sort", "sum", "title", "trim",
    "truncate", "unique", "upper", "wordcount",
)  # fmt: skip
NAMES: Final = tuple(sorted((*_FILTERS, *OWN_FILTERS)))
# Methods with a width could make texts of any size, and so could `translate`, which also makes
# characters that are no Unicode text. Bytes are not JSON.
_REFUSED_METHODS: Final = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate",
     "maketrans", "encode", "fromkeys"}
)  # fmt: skip
# Filters in place of operations of Jinja2 that have no limit. Templates cannot write their names.
_EACH: Final = "weft each"
_CONCAT: Final = "weft concat"
_COMPARE: Final = "weft compare"
_SLICE: Final = "weft slice"
_METHOD: Final = "weft method"


class _Metered(NodeTransformer):
    """Replaces the operations of a syntax tree that have no limit."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        constant = sum(len(one.data) for one in node.find_all(nodes.TemplateData))
        node.iter = _filter(node.iter, _EACH, nodes.Const(constant))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node.nodes[0], _CONCAT, *node.nodes[1:])

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        rest = [part for one in node.ops for part in (nodes.Const(one.op), one.expr)]
        return _filter(node.expr, _COMPARE, *rest)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _filter(node, _SLICE) if isinstance(node.arg, nodes.Slice) else node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.node, nodes.Getattr):
            node.node = _filter(node.node.node, _METHOD, nodes.Const(node.node.attr))
        return node


def _filter(node: Any, name: str, *arguments: nodes.Expr) -> nodes.Filter:
    place = {"lineno": node.lineno, "environment": node.environment}
    return nodes.Filter(node, name, list(arguments), [], None, None, **place)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def _generate(self, source: nodes.Template, *arguments: Any, **named: Any) -> str:
        return super()._generate(_Metered().visit(source), *arguments, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse operations whose result can be very large, and count those that are large."""
        meter = meter_of(context)
        if operator == "%" and isinstance(left, str):
            raise TemplateError("'%' formats no text in templates; use '~' to join texts")
        if operator == "**" and not (_is_number(right) and abs(right) <= _MAX_EXPONENT):
            raise TemplateError(f"exponents are at most {_MAX_EXPONENT}")
        if isinstance(left, int) and isinstance(right, int):
            one = left.bit_length()
            check_bits(one * right if operator == "**" else one + right.bit_length())
        if operator == "+":
            for one in (left, right):
                if isinstance(one, str | list | tuple):
                    meter.made(one)
        if operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(one, str | list | tuple) and isinstance(times, int):
                    size = len(one) * max(times, 0)
                    if size > _MAX_PRODUCT:
                        raise TemplateError(f"'*' makes at most {_MAX_PRODUCT} characters or items")
                    (meter.text if isinstance(one, str) else meter.step)(size)
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return the value of a key. Only calls read methods."""
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return the value of a key or index, or a property of `loop` or of a group of
        `groupby`.
        """
        try:
            return obj[argument]
        except (TypeError, LookupError):
            if isinstance(argument, str) and isinstance(obj, LoopContext | tuple):
                value = getattr(obj, argument, None)
                if not callable(value) and self.is_safe_attribute(obj, argument, value):
                    return self.undefined(obj=obj, name=argument) if value is None else value
        return self.undefined(obj=obj, name=argument)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method within the limits of a rendering."""
        owner = getattr(__obj, "__self__", None)
        name = getattr(__obj, "__name__", "")
        meter = meter_of(__context)
        meter.take(owner if isinstance(owner, str | dict) else None)
        if not isinstance(owner, str):
            found = super().call(__context, __obj, *args, **kwargs)
            # Views of mappings are not JSON.
            return list(found) if isinstance(found, _VIEWS) else found
        named = {one: value for one, value in kwargs.items() if one not in _INNER}
        if name == "replace":
            return replace(__context, owner, *args, **named)
        if name == "join" and len(args) == 1:
            return join(__context, args[0], owner)
        meter.method(owner, name, (*args, *named.values()))
        return meter.made(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Any:
        """Make no exception for `format`, so that `is_safe_attribute` decides."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Values are JSON; only texts and mappings have methods, without those with a width."""
        if callable(value) and (not isinstance(obj, str | dict) or attr in _REFUSED_METHODS):
            return False
        return super().is_safe_attribute(obj, attr, value)


_VIEWS: Final[tuple[type[Iterable[Any]], ...]] = (
    type({}.keys()), type({}.values()), type({}.items()),
)  # fmt: skip
# Arguments with which Jinja2 calls in a loop or block.
_INNER: Final = frozenset({"_loop_vars", "_block_vars", "caller"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


@pass_context
def _each(context: Any, items: Any, constant: int) -> Any:
    """Count the rounds of a loop. constant: characters of its text without placeholders."""
    meter = meter_of(context)
    items = meter.listed(items)
    meter.step(len(items))
    meter.text(len(items) * constant)
    return items


@pass_context
def _concat(context: Any, *values: Any) -> str:
    return meter_of(context).joined(values)


@pass_context
def _compare(context: Any, left: Any, *rest: Any) -> Any:
    """Compare neighbours. rest: names of comparisons, each with the value at its right."""
    found: Any = True
    for name, right in zip(rest[::2], rest[1::2], strict=True):
        found = meter_of(context).compared(name, left, right)
        if not found:
            break
        left = right
    return found


@pass_context
def _slice(context: Any, part: Any) -> Any:
    meter_of(context).take(part)
    return part


@pass_context
def _method(context: Any, owner: Any, name: str) -> Any:
    """Return a method, also if the mapping has a key of this name: JSON has no functions."""
    environment = context.environment
    if isinstance(owner, Undefined):
        return environment.getattr(owner, name)
    found = getattr(owner, name, None)
    if callable(found) and environment.is_safe_attribute(owner, name, found):
        return found
    return environment.undefined(f"{object_type_repr(owner)} has no method {name!r}")


@pass_context
def _finalized(context: Any, value: Any) -> str:
    meter = meter_of(context)
    if isinstance(value, str):
        meter.text(len(value))
    return meter.shown(value)


def _environment() -> _Environment:
    environment = _Environment(
        undefined=StrictUndefined, finalize=_finalized, keep_trailing_newline=True, autoescape=False
    )
    environment.globals.clear()
    kept = {name: metered(name, environment.filters[name]) for name in _FILTERS}
    environment.filters.clear()
    environment.filters.update(kept)
    environment.filters.update(OWN_FILTERS)
    environment.filters.update({
        _EACH: _each, _CONCAT: _concat, _COMPARE: _compare, _SLICE: _slice, _METHOD: _method,
    })  # fmt: skip
    environment.tests.update(OWN_TESTS)
    return environment


JINJA: Final = _environment()
