"""What the command line checks by itself, before a command runs and anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand


class Passing(TyperCommand):
    """A command that keeps what follows `--` for somebody else, in `context.args`. Before it, a
    word that is no option is a mistake."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before the first `--`."""
        at = args.index("--") if "--" in args else len(args)
        super().parse_args(ctx, args[:at])
        ctx.args = args[at + 1 :]
        return args[at + 1 :]


def exclude(context: typer.Context, option: str, others: Sequence[str], why: str) -> None:
    """Refuse options that would be ignored beside `option`. `others`: names of parameters.
    typer.BadParameter."""
    found = [*given(context, others), *context.args[:1]]
    if found:
        raise typer.BadParameter(f"{', '.join(found)} and {option} exclude each other: {why}")


def given(context: typer.Context, names: Sequence[str]) -> list[str]:
    """Which of these parameters the command line sets, as one writes them there."""
    found = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            found.append("/".join([*parameter.opts, *parameter.secondary_opts]))
    return found


def counts(text: str, option: str, *, empty: bool = False) -> tuple[int, ...]:
    """Whole numbers above 0, comma-separated. `empty`: there may be none. typer.BadParameter."""
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip() or not empty)
    except ValueError:
        found = ()
        empty = empty and not text.strip()
    if any(number < 1 for number in found) or not (found or empty):
        raise typer.BadParameter(
            f"{text!r} is no list of numbers above 0, as 1,8,64", param_hint=option
        )
    return found


def one_of(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Names out of `known`, comma-separated, or 'all'; each counts once. typer.BadParameter."""
    if text.strip() == "all":
        return tuple(known)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"unknown: {', '.join(unknown)}" if unknown else "nothing is named"
        raise typer.BadParameter(f"{what}; known are {', '.join(known)}", param_hint=option)
    return names


def one_name(text: str, known: Sequence[str], option: str) -> str:
    """One name out of `known`. typer.BadParameter."""
    if text not in known:
        what = f"unknown: {text}; known are {', '.join(known)}"
        raise typer.BadParameter(what, param_hint=option)
    return text


def writable(value: str) -> str:
    """A path at which a file can be written, or ""; made and removed again to see. A callback of
    typer's. typer.BadParameter."""
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
