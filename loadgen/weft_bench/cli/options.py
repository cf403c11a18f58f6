"""Declares commands by dataclasses of their options, and checks options before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

_T = TypeVar("_T")
_Options = TypeVar("_Options")


@dataclass(frozen=True, slots=True)
class Parsed:
    """Marks an option whose text is converted to the field's value.

    parse: gets the text, and the option's name as `option`; raises typer.BadParameter. default:
    text of the field's default; None for its items, comma-separated.
    """

    parse: Callable[..., Any]
    default: str | None = None

    def text(self, value: Any) -> str:
        """Return a field's default as text."""
        if self.default is not None:
            return self.default
        return value if isinstance(value, str) else ",".join(map(str, value))


def command(
    group: typer.Typer,
    name: str,
    module: str,
    *,
    check: Callable[[typer.Context, Any], Any] | None = None,
    cls: type[TyperCommand] | None = None,
) -> Callable[[type[_Options]], type[_Options]]:
    """Add a command to a group by the dataclass of its options, whose docstring is the help.

    A field has the type `Annotated[..., typer.Option(...)]`; other fields are no options. The
    module is imported when the command runs: its `run` gets the options and returns the exit
    status. check: returns the options to run with, or raises typer.BadParameter. cls: typer's class
    of the command.
    """

    def add(options: type[_Options]) -> type[_Options]:
        parameters, parsers = _parameters(options)

        def run(_context: typer.Context, **given: Any) -> None:
            values = {at: parsers[at](one) if at in parsers else one for at, one in given.items()}
            asked: Any = options(**values)
            if check is not None:
                asked = check(_context, asked)
            try:
                found = import_module(module)
            except ModuleNotFoundError as error:
                what = f"not installed: {error.name or error}. Run: make install"
                typer.echo(f"weft bench {name}: {what}", err=True)
                raise typer.Exit(2) from None
            raise typer.Exit(found.run(asked))

        run.__doc__, run.__annotations__ = options.__doc__, {}
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        group.command(name, cls=cls)(run)
        return options

    return add


def _parameters(options: Any) -> tuple[list[Parameter], dict[str, Callable[[str], Any]]]:
    """Return typer's parameters of a dataclass, and the parsers of those that are text."""
    parsers: dict[str, Callable[[str], Any]] = {}
    # The name differs from those of options.
    found = [Parameter("_context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        annotation, default = hints[field.name], field.default
        option, parsed = _part(annotation, OptionInfo), _part(annotation, Parsed)
        if option is None:
            continue
        if parsed is not None:
            # In an annotation, typer has an option's name in `default`.
            at = option.default if isinstance(option.default, str) else f"--{field.name}"
            parsers[field.name] = partial(parsed.parse, option=at)
            annotation, default = Annotated[str, option], parsed.text(default)
        default = Parameter.empty if default is MISSING else default
        kind = Parameter.KEYWORD_ONLY
        found.append(Parameter(field.name, kind, default=default, annotation=annotation))
    return found, parsers


def _part(annotation: Any, kind: type[_T]) -> _T | None:
    """Return the first part of an `Annotated` type that is of a kind."""
    return next((part for part in get_args(annotation) if isinstance(part, kind)), None)


def counts(text: str, option: str, *, empty: bool = False) -> tuple[int, ...]:
    """Parse comma-separated whole numbers above 0. empty: allow none. Raises typer.BadParameter."""
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip() or not empty)
    except ValueError:
        found = ()
        empty = empty and not text.strip()
    if any(number < 1 for number in found) or not (found or empty):
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers above 0, such as 1,8,64", param_hint=option
        )
    return found


def names(text: str, option: str = "") -> tuple[str, ...]:
    """Parse comma-separated names and drop duplicates."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def some_of(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Parse comma-separated names out of `known`, or 'all', and drop duplicates.

    Raises typer.BadParameter.
    """
    if text.strip() == "all":
        return tuple(known)
    found = names(text)
    unknown = [name for name in found if name not in known]
    if unknown or not found:
        what = f"unknown: {', '.join(unknown)}" if unknown else "the list is empty"
        raise typer.BadParameter(f"{what}; known: {', '.join(known)}", param_hint=option)
    return found


def one_of(text: str, known: Sequence[str], option: str) -> str:
    """Check that a name is one of `known`. Raises typer.BadParameter."""
    if text not in known:
        what = f"unknown: {text}; known: {', '.join(known)}"
        raise typer.BadParameter(what, param_hint=option)
    return text


def choice(
    where: str, *, several: bool = False, empty: bool = False, default: str | None = None
) -> Parsed:
    """Return the parser of a name, or of `several`, out of a container that is imported when used.

    where: `module:NAME` of the container. empty: allow "". default: see Parsed.
    """

    def parse(text: str, option: str) -> Any:
        if empty and not text:
            return () if several else ""
        module, _, name = where.partition(":")
        known = tuple(getattr(import_module(module), name))
        return (some_of if several else one_of)(text, known, option)

    return Parsed(parse, default)


def writable(value: str) -> str:
    """Check in a typer callback that a file can be written at this path, unless it is "".

    Raises typer.BadParameter.
    """
    if value:
        path = Path(value)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = not path.exists()
            with path.open("ab"):
                pass
            if new:
                path.unlink()
        except OSError as error:
            raise typer.BadParameter(f"{value} cannot be written: {error.strerror}") from None
    return value


Option = typer.Option
JsonFile = Annotated[
    str, typer.Option("--json", callback=writable, help="write the figures to this file")
]
Names = Annotated[tuple[str, ...], Parsed(names)]
Orders = Annotated[tuple[str, ...], choice("weft_engine.wire:ORDER_NAMES", several=True)]
Arrivals = Annotated[str, choice("weft_bench.workloads.arrivals:KINDS")]
ArrivalsOrRecorded = Annotated[str, choice("weft_bench.workloads.arrivals:ALL")]
BaseUrl = Annotated[str, Option(help="a running gateway; default: start one as `weft up` does")]
SwapGib = Annotated[
    float, Option(min=0.0, help="host memory for KV of preempted calls, GiB; 0: no swap")
]
