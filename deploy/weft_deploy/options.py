"""Checks of command line options that run before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand


class PassThroughCommand(TyperCommand):
    """A command that passes the arguments after `--` on, in `context.args`. An unknown argument
    before `--` is an error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the first `--`."""
        at = args.index("--") if "--" in args else len(args)
        super().parse_args(ctx, args[:at])
        ctx.args = args[at + 1 :]
        return args[at + 1 :]


def exclude(context: typer.Context, option: str, others: Sequence[str], why: str) -> None:
    """Reject the parameters `others` and arguments after `--` beside `option`, which would make
    them ineffective. Raises typer.BadParameter."""
    found = [*given(context, others), *context.args[:1]]
    if found:
        raise typer.BadParameter(f"{', '.join(found)} and {option} exclude each other: {why}")


def given(context: typer.Context, names: Sequence[str]) -> list[str]:
    """Those of the parameters `names` that the command line sets, spelled as options."""
    found = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            found.append("/".join([*parameter.opts, *parameter.secondary_opts]))
    return found
