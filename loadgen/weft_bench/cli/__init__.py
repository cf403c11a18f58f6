"""The command `weft bench`. Each command imports what it needs when it runs."""

from __future__ import annotations

import signal

import typer

from weft_bench.cli.agents import agents
from weft_bench.cli.parts import parts
from weft_bench.cli.studies import studies

bench = typer.Typer(no_args_is_help=True, add_completion=False)
for group in (agents, studies, parts):
    bench.add_typer(group)


@bench.callback()
def _bench() -> None:
    """Measure Weft: compare proxies, repeat studies, time its parts."""
    # SIGTERM ends a bench like SIGINT, so that the processes it started end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
