"""The `weft` command: `weft serve`, `weft replicas`, and the commands that other packages mount.

A package mounts its command through the entry-point group `weft.commands`. The command is imported
when it runs or when `weft --help` lists it: the gateway imports no other package of Weft.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

GROUP: Final = "weft.commands"
# The gateway's own commands that are imported when they run: summary, and the place of the command.
OWN: Final = {
    "explain": (
        "Show the plan of a batch workflow: calls, tokens, rewrites.",
        "weft_run.cli:explaining",
    ),
    "keys": ("Make API keys for the keys file of a gateway.", "weft_gateway.cli_keys:app"),
    "replicas": (
        "List, add, drain, resume and remove replicas of a running gateway.",
        "weft_gateway.cli_replicas:app",
    ),
    "run": ("Run a batch workflow over a file of rows.", "weft_run.cli:app"),
    "slo": (
        "Check SLO files.",
        "weft_gateway.cli_slo:app",
    ),
    "top": (
        "Show programs and engines live, in the terminal.",
        "weft_gateway.cli_top:app",
    ),
    "why": (
        "Show why prompt tokens of a session were computed again.",
        "weft_gateway.cli_why:app",
    ),
}


class OwnCommand(TyperCommand):
    """A command of another module. Parsing its arguments imports it."""

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **more: Any) -> Any:
        """Parse the arguments with the real command."""
        assert self.name is not None
        return load(self.name).make_context(info_name, args, parent, **more)


class MissingCommand(TyperCommand):
    """A mounted command whose packages are not installed."""

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **more: Any) -> Any:
        """Print what to install, and exit."""
        typer.echo(f"weft {self.name}: {self.help}", err=True)
        raise typer.Exit(2)


class Commands(TyperGroup):
    """The gateway's own commands, then the mounted ones."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (summary, _) in OWN.items():
            self.add_command(OwnCommand(name, help=summary))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        from importlib import metadata

        own = super().list_commands(ctx)
        mounted = {entry.name for entry in metadata.entry_points(group=GROUP)}
        return [*own, *sorted(mounted.difference(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, None for an unknown name."""
        return super().get_command(ctx, cmd_name) or load(cmd_name)


def load(name: str) -> Any:
    """Import a command of another module or package. None if there is none of this name."""
    from importlib import import_module, metadata

    if name in OWN:
        module, _, attribute = OWN[name][1].partition(":")
        command = typer.main.get_command(getattr(import_module(module), attribute))
        command.name = name
        return command
    for entry in metadata.entry_points(group=GROUP, name=name):
        try:
            command = typer.main.get_command(entry.load())
        except ModuleNotFoundError as error:
            from weft_run.installing import command as install

            what = f"not installed: {error.name or error}. Run: {install('')}"
            return MissingCommand(name, help=what)
        command.name = name
        return command
    return None


app = typer.Typer(
    name="weft",
    cls=Commands,
    help="Serve agent programs, not calls: an OpenAI-compatible gateway in front of vLLM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"weft {version('weft-gateway')}")
        raise typer.Exit


@app.callback()
def _weft(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="show the version"),
    ] = False,
) -> None:
    """Serve agent programs, not calls: an OpenAI-compatible gateway in front of vLLM."""


@app.command()
def serve(
    replica: Annotated[
        list[str] | None,
        typer.Option(help="URL or NAME=URL of an engine; repeatable (WEFT_REPLICAS)"),
    ] = None,
    redis: Annotated[
        str | None, typer.Option(help="process table on Redis (WEFT_REDIS_URL)")
    ] = None,
    balancer: Annotated[
        str | None,
        typer.Option(
            help="how to select a replica: locality, round_robin, least_used, work or soonest "
            "(WEFT_BALANCER)"
        ),
    ] = None,
    slo: Annotated[
        str | None, typer.Option(help="YAML file with SLO classes (WEFT_SLO_FILE)")
    ] = None,
    keys: Annotated[
        str | None, typer.Option(help="TOML file of accepted API keys (WEFT_KEYS_FILE)")
    ] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on (WEFT_HOST)")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on (WEFT_PORT)")] = None,
) -> None:
    """Run only the gateway. WEFT_* variables can set every setting."""
    from weft_gateway import config
    from weft_gateway.serve import run

    try:
        settings = config.load(
            replicas=",".join(replica) if replica else None,
            redis_url=redis,
            balancer=balancer,
            slo_file=slo,
            keys_file=keys,
            host=host,
            port=port,
        )
    except config.SettingsError as error:
        for line in str(error).splitlines():
            typer.echo(f"weft serve: {line}", err=True)
        raise typer.Exit(2) from None
    for line in (*config.unread(os.environ), *config.exposed(settings)):
        typer.echo(f"weft serve: warning: {line}", err=True)
    raise typer.Exit(run(settings))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
