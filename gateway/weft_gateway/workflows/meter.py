"""The limits of one rendering of a template: steps and characters. Pure and without a clock, so
that a row fails at any speed of the machine or at none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import pass_context

# Items of loops and filters, and calls of methods.
MAX_STEPS: Final = 1_000_000
MAX_TEXT: Final = 16_777_216
# Templates cannot write these names.
METER: Final = "weft meter"
EACH: Final = "weft each"
# Characters that count as one step.
_A_STEP: Final = 64
_MAX_PLACES: Final = 100
_MAX_WRAP: Final = 64


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
            self.step(len(value) if hasattr(value, "__len__") else 1)

    def made(self, value: Any) -> Any:
        """Count a value that a filter has made. Returns it; one that yields its items is counted
        while it is read.
        """
        if isinstance(value, str):
            self.text(len(value))
        elif hasattr(value, "__next__"):
            return self._counted(value)
        elif hasattr(value, "__len__"):
            self.step(len(value))
        return value

    def _counted(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self.step(1)
            yield item

    def call(self, function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Count a call of a method before it is made."""
        owner = getattr(function, "__self__", None)
        self.take(owner if isinstance(owner, str | dict) else None)
        check = _BEFORE.get(getattr(function, "__name__", "")) if isinstance(owner, str) else None
        if check is _joined:
            # `separator.join(items)`; the filter has the other order.
            check(self, *arguments, owner)
        elif check is _replaced:
            check(self, owner, *arguments, **named)


def meter_of(context: Any) -> Meter:
    """Return the meter of a rendering."""
    found = context.get(METER)
    return found if isinstance(found, Meter) else Meter()


@pass_context
def each(context: Any, items: Any, constant: int) -> Any:
    """Count the rounds of a loop. constant: characters of its text without placeholders."""
    meter = meter_of(context)
    if not hasattr(items, "__len__"):
        items = list(meter.made(iter(items)))
    meter.take(items)
    meter.text(len(items) * constant)
    return items


def metered(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that counts what it reads and makes. name: of the filter."""
    passed = getattr(getattr(function, "jinja_pass_arg", None), "name", "")
    before = _BEFORE.get(name)

    @pass_context
    def counted(context: Any, value: Any, *arguments: Any, **named: Any) -> Any:
        meter = meter_of(context)
        if name == "join" and not hasattr(value, "__len__"):
            value = list(meter.made(iter(value)))
        meter.take(value)
        if before is not None:
            before(meter, value, *arguments, **named)
        first = {
            "context": (context,),
            "eval_context": (context.eval_ctx,),
            "environment": (context.environment,),
        }.get(passed, ())
        return meter.made(function(*first, value, *arguments, **named))

    return counted


def _replaced(meter: Meter, text: Any, old: str, new: str, count: int = -1) -> None:
    found = str(text).count(str(old))
    times = found if count is None or count < 0 else min(found, count)
    meter.text(times * len(str(new)))


def _joined(meter: Meter, items: Any, separator: Any = "", attribute: Any = None) -> None:
    meter.text(len(items) * len(str(separator)))
    for item in items:
        meter.text(len(item) if isinstance(item, str) else len(str(item)))


def _summed(meter: Meter, items: Any, attribute: Any = None, start: Any = 0) -> None:
    # A sum of lists copies the earlier ones at each step.
    if not isinstance(start, int | float):
        raise TemplateError("'sum' adds numbers, so `start` is a number")


def _rounded(meter: Meter, value: Any, precision: int = 0, method: str = "common") -> None:
    if abs(precision) > _MAX_PLACES:
        raise TemplateError(f"'round' takes at most {_MAX_PLACES} places")


def _wrapped(
    meter: Meter,
    text: Any,
    width: int = 79,
    break_long_words: bool = True,
    wrapstring: str | None = None,
    break_on_hyphens: bool = True,
) -> None:
    if wrapstring is not None and len(wrapstring) > _MAX_WRAP:
        raise TemplateError(f"'wordwrap' inserts at most {_MAX_WRAP} characters")


_BEFORE: Final[Mapping[str, Callable[..., None]]] = {
    "replace": _replaced, "join": _joined, "round": _rounded, "sum": _summed,
    "wordwrap": _wrapped,
}  # fmt: skip
