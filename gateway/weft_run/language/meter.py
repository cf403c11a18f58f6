"""The limits of one rendering of a template: steps and characters. Pure and without a clock, so
that a row fails at any speed of the machine or at none.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Final

from jinja2 import Undefined, pass_context

# Items of loops and filters, values that are compared, and calls of methods.
MAX_STEPS: Final = 1_000_000
MAX_TEXT: Final = 16_777_216
# Bits of a number that an operation or filter makes.
MAX_BITS: Final = 4096
# Levels of a value. A row has at most 100, and is one itself.
MAX_LEVELS: Final = 99
# Templates cannot write this name.
METER: Final = "weft meter"
# Characters that count as one step.
_A_STEP: Final = 64
_MAX_PLACES: Final = 100


class TemplateError(ValueError):
    """A template is invalid, or cannot be rendered. line: 1-based line within the template."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class Meter:
    """Counts the steps and characters of one rendering. All methods raise TemplateError."""

    __slots__ = ("_size", "_steps")

    def __init__(self) -> None:
        self._steps = 0
        self._size = 0

    def step(self, count: int) -> None:
        """Count steps."""
        self._steps += count
        if self._steps > MAX_STEPS:
            raise TemplateError(f"a placeholder makes at most {MAX_STEPS} steps")

    def text(self, size: int) -> None:
        """Count characters."""
        self._size += size
        if self._size > MAX_TEXT:
            raise TemplateError(f"a placeholder makes at most {MAX_TEXT} characters")

    def take(self, value: Any) -> None:
        """Count the items or characters of a value that is about to be read."""
        if isinstance(value, str):
            self.step(1 + len(value) // _A_STEP)
        else:
            self.step(len(value) if _has_length(value) else 1)

    def take_all(self, value: Any) -> int:
        """Count all that a value contains, because it is about to be compared. Returns the steps
        of this value.
        """
        before = self._steps
        left = [value]
        while left:
            one = left.pop()
            self.take(one)
            if isinstance(one, dict):
                left += one.keys()
                left += one.values()
            elif isinstance(one, list | tuple):
                left += one
        return self._steps - before

    def made(self, value: Any) -> Any:
        """Count a value that a filter has made, and return it. An iterator is counted while it is
        read.
        """
        if isinstance(value, str):
            self.text(len(value))
        elif isinstance(value, int):
            check_bits(value.bit_length())
        elif hasattr(value, "__next__"):
            return self._counted(value)
        elif _has_length(value):
            self.step(len(value))
        return value

    def _counted(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.step(1)
            yield item

    def listed(self, items: Any) -> Any:
        """Return items with a length: an iterator becomes a list."""
        return items if hasattr(items, "__len__") else list(self.made(iter(items)))

    def plain(self, value: Any, level: int = 0) -> Any:
        """Return a value as JSON, and count its characters: iterators become lists. A value
        that is JSON already is not copied.
        """
        if isinstance(value, str):
            self.text(len(value) + 2)
            return value
        self.text(2)
        if value is None or isinstance(value, int):
            return value
        if isinstance(value, float):
            if not isfinite(value):
                raise TemplateError(f"the number {value} is not JSON")
            return value
        if isinstance(value, Undefined):
            # Raises the error of the missing value.
            return str(value)
        if level == MAX_LEVELS:
            raise TemplateError(f"the value is nested too deeply; at most {MAX_LEVELS} levels")
        if isinstance(value, dict):
            copy = {self._key(key): self.plain(one, level + 1) for key, one in value.items()}
            same = all(map(operator.is_, copy, value))
            return value if same and _same(copy.values(), value.values()) else copy
        if isinstance(value, list):
            items = [self.plain(one, level + 1) for one in value]
            return value if _same(items, value) else items
        if isinstance(value, tuple) or type(value).__name__ in _YIELDING:
            return [self.plain(one, level + 1) for one in value]
        raise TemplateError(f"a value of type {type(value).__name__!r} is not JSON")

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            if key is not None and not isinstance(key, int | float):
                raise TemplateError(f"a key of type {type(key).__name__!r} is not JSON")
            key = json.dumps(key)
        self.text(len(key) + 2)
        return str(key)

    def json(self, value: Any) -> str:
        """Return a value as a JSON text, and count its characters."""
        before = self._size
        text = _as_json(self.plain(value))
        # Without this, characters that JSON escapes would count once.
        self._size = before
        self.text(len(text))
        return text

    def shown(self, value: Any) -> str:
        """Return how a value appears in a text, and count its characters, unless it is a text."""
        return shown(value) if value is None or isinstance(value, str) else self.json(value)

    def joined(self, values: Iterable[Any], separator: str = "") -> str:
        """Return the texts of values, with a separator between them."""
        texts = [self.shown(value) for value in values]
        self.text(sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0))
        return separator.join(texts)

    def compared(self, name: str, left: Any, right: Any) -> Any:
        """Return the result of a comparison. name: as in Jinja2's syntax trees."""
        if name in ("in", "notin"):
            steps = self.take_all(left)
            if isinstance(right, str):
                self.take(right)
            elif not isinstance(right, dict):
                right = self.listed(right)
                self.step(len(right) * steps)
        elif name not in ("eq", "ne") or _length(left) == _length(right):
            self.take_all(left)
        return _COMPARISONS[name](left, right)

    def method(self, text: str, name: str, words: Iterable[Any]) -> None:
        """Count a call of a method of a text. words: the arguments."""
        given = [word for word in words if isinstance(word, str)]
        if name in _SLOW:
            self.step(len(text) * max(map(len, given), default=0) // _A_STEP)
        if given and name in ("split", "rsplit"):
            self.step(text.count(given[0]) if given[0] else 0)
        elif name in _CUTS:
            for _ in _CUTS[name].finditer(text):
                self.step(1)


# Types of the iterators that filters return.
_YIELDING: Final = frozenset({"generator", "list_reverseiterator"})
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "lteq": operator.le,
    "gt": operator.gt, "gteq": operator.ge, "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}  # fmt: skip
# Methods and filters whose time is the product of two lengths.
_SLOW: Final = frozenset(
    {"strip", "lstrip", "rstrip", "trim", "rfind", "rindex", "rpartition", "rsplit"}
)
# Cuts that methods and filters make. Each piece of a text needs memory.
_CUTS: Final[Mapping[str, re.Pattern[str]]] = {
    "split": re.compile(r"\S+"), "rsplit": re.compile(r"\S+"), "wordcount": re.compile(r"\w+"),
    "splitlines": re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"),
    "title": re.compile(r"[-\s({\[<]+"),
}  # fmt: skip


def shown(value: Any) -> str:
    """Return how JSON appears in a text: lists and mappings as JSON, None as an empty text."""
    if isinstance(value, str):
        return value
    return "" if value is None else _as_json(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def check_bits(bits: int) -> None:
    """Refuse large numbers. Raises TemplateError."""
    if bits > MAX_BITS:
        raise TemplateError(f"numbers have at most {MAX_BITS} bits")


def _has_length(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, Undefined)


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, str | list | tuple | dict) else None


def _same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    return all(map(operator.is_, left, right))


def meter_of(context: Any) -> Meter:
    """Return the meter of a rendering."""
    found = context.get(METER)
    return found if isinstance(found, Meter) else Meter()


# Filters that make a text of any value.
_TEXTS: Final = frozenset(
    {"capitalize", "lower", "title", "trim", "truncate", "upper", "wordcount"}
)
# Filters that compare what a value contains, or make keys of it.
_COMPARING: Final = frozenset({"dictsort", "groupby", "max", "min", "sort", "unique"})


def metered(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that counts what it reads and makes. name: of the filter."""
    passed = getattr(getattr(function, "jinja_pass_arg", None), "name", "")
    check = _CHECKS.get(name)

    @pass_context
    def counted(context: Any, value: Any, *arguments: Any, **named: Any) -> Any:
        meter = meter_of(context)
        if name in _TEXTS:
            value = meter.shown(value)
            meter.method(value, name, (*arguments, *named.values()))
        if name in _COMPARING:
            value = meter.listed(value)
            meter.step(len(value))
            meter.take_all(value)
        else:
            meter.take(value)
        if check is not None:
            check(value, *arguments, **named)
        first = {
            "context": (context,),
            "eval_context": (context.eval_ctx,),
            "environment": (context.environment,),
        }.get(passed, ())
        return meter.made(function(*first, value, *arguments, **named))

    return counted


def _summed(items: Any, attribute: Any = None, start: Any = 0) -> None:
    # A sum of lists copies the earlier ones at each step.
    if not isinstance(start, int | float):
        raise TemplateError("'sum' adds numbers, so `start` is a number")


def _rounded(value: Any, precision: int = 0, method: str = "common") -> None:
    if abs(precision) > _MAX_PLACES:
        raise TemplateError(f"'round' takes at most {_MAX_PLACES} places")


_CHECKS: Final[Mapping[str, Callable[..., None]]] = {"round": _rounded, "sum": _summed}


@pass_context
def join(context: Any, items: Any, d: Any = "", attribute: Any = None) -> str:
    """The filter `join`, and the method of texts."""
    meter = meter_of(context)
    if attribute is not None:
        named = {"attribute": attribute}
        items = context.environment.call_filter("map", items, (), named, context)
    items = meter.listed(items)
    meter.step(len(items))
    return meter.joined(items, meter.shown(d))


@pass_context
def replace(context: Any, text: Any, old: Any, new: Any, count: int | None = None) -> str:
    """The filter `replace`, and the method of texts."""
    meter = meter_of(context)
    text, old, new = (meter.shown(one) for one in (text, old, new))
    meter.take(text)
    most = -1 if count is None else count
    found = text.count(old)
    meter.text(len(text) + (found if most < 0 else min(found, most)) * len(new))
    return str(text.replace(old, new, most))


@pass_context
def string(context: Any, value: Any) -> str:
    """The filter `string`."""
    return meter_of(context).shown(value)


@pass_context
def tojson(context: Any, value: Any) -> str:
    """The filter `tojson`."""
    return meter_of(context).json(value)


OWN_FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "join": join, "replace": replace, "string": string, "tojson": tojson,
}  # fmt: skip


def _comparing(name: str) -> Callable[..., Any]:
    @pass_context
    def test(context: Any, value: Any, other: Any) -> Any:
        return meter_of(context).compared(name, value, other)

    return test


def _numeric(test: Callable[..., bool]) -> Callable[..., bool]:
    def checked(value: Any, *others: Any) -> bool:
        # `%` would format a text.
        if isinstance(value, str):
            raise TemplateError("'odd', 'even' and 'divisibleby' test numbers, not texts")
        return test(value, *others)

    return checked


def _textual(test: Callable[[str], bool]) -> Callable[..., Any]:
    @pass_context
    def counted(context: Any, value: Any) -> bool:
        meter = meter_of(context)
        text = meter.shown(value)
        meter.take(text)
        return test(text)

    return counted


_TEST_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "eq": ("eq", "==", "equalto"), "ne": ("ne", "!="), "gt": ("gt", ">", "greaterthan"),
    "gteq": ("ge", ">="), "lt": ("lt", "<", "lessthan"), "lteq": ("le", "<="), "in": ("in",),
}  # fmt: skip
OWN_TESTS: Final[Mapping[str, Callable[..., Any]]] = {
    **{name: _comparing(kind) for kind, names in _TEST_NAMES.items() for name in names},
    "even": _numeric(lambda value: value % 2 == 0),
    "odd": _numeric(lambda value: value % 2 == 1),
    "divisibleby": _numeric(lambda value, other: value % other == 0),
    "lower": _textual(str.islower),
    "upper": _textual(str.isupper),
}
