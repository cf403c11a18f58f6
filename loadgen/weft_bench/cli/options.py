"""Options that several bench commands share, and their checks, which run before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer


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


def names(text: str) -> tuple[str, ...]:
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


JsonFile = Annotated[
    str, typer.Option("--json", callback=writable, help="write the figures to this file")
]
