"""`weft keys`: make API keys for the keys file of a gateway."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Make API keys for the keys file of a gateway.", no_args_is_help=True, add_completion=False
)


@app.callback()
def _keys() -> None:
    """Make API keys for the keys file of a gateway."""


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="name of the key in the file and in reports")],
    file: Annotated[
        str, typer.Option("--file", envvar="WEFT_KEYS_FILE", help="the keys file; made if missing")
    ],
) -> None:
    """Make a key, add its digest to the file, and print the key. Only its owner can know it later.
    A running gateway accepts it after SIGHUP.
    """
    from weft_gateway import tenants
    from weft_gateway.programs.identity import tenant_of

    key, path = f"sk-{secrets.token_urlsafe(24)}", Path(file)
    try:
        if not re.fullmatch(tenants.NAME, name):
            raise ValueError(f"{name!r} is no name: use letters, digits, dots, dashes, underscores")
        present = path.read_text(encoding="utf-8") if path.exists() else ""
        if name in tenants.parsed(present).keys:
            raise ValueError(f"keys.{name} exists already")
        entry = f'\n[keys."{name}"]\ndigest = "{tenant_of(key)}"\n'
        tenants.parsed(present + entry)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "a", encoding="utf-8") as output:
            output.write(entry)
    except (OSError, ValueError) as error:
        typer.echo(f"weft keys: {file}: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(key)
    typer.echo(f"{file}: added {name}. Running gateways accept the key after SIGHUP.", err=True)
