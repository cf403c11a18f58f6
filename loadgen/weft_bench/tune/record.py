"""`weft record`: writes the journals of gateways to a file, also in formats of other benches."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from weft_bench.tune.formats import mooncake, weka
from weft_bench.tune.journals import Journals, TuneError, read
from weft_bench.tune.recorded import Line, latest, recorded

# A journal has the last 16,384 calls of its gateway, and fewer if prompts are long.
_EVERY_S: Final = 5.0

record = typer.Typer(add_completion=False)


class Format(StrEnum):
    """What the file has."""

    JOURNAL = "journal"
    MOONCAKE = "mooncake"
    WEKA = "weka"


@record.command()
def run(
    out: Annotated[Path, typer.Argument(help="file to write; with --format weka, a folder")],
    gateway: Annotated[list[str] | None, typer.Option(help="URL of a gateway; repeatable")] = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="how long to read on; 0: what the journals have now")
    ] = 0.0,
    convert: Annotated[
        Path | None, typer.Option(help="a record to convert, in place of gateways")
    ] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="journal: all that `weft advise` needs; mooncake: Mooncake's trace; weka: "
            "sessions for aiperf, one file each",
        ),
    ] = Format.JOURNAL,
) -> None:
    """Record the calls of gateways: lengths, hashes and times, and no text.

    WEFT_ADMIN_KEY is the admin key of the gateways. Ctrl-C ends a recording early.
    """
    journals = Journals(gateway or ["http://127.0.0.1:8080"])
    try:
        if out.exists():
            raise TuneError(f"{out} exists")
        if convert is not None:
            lines = read(convert)
        else:
            lines = _follow(journals, 60 * minutes, out if format_ is Format.JOURNAL else None)
        if format_ is not Format.JOURNAL:
            _write(out, format_, lines)
    except (TuneError, OSError) as error:
        typer.echo(f"weft record: {error}", err=True)
        raise typer.Exit(1) from None
    if journals.gaps:
        typer.echo(
            f"weft record: {journals.gaps} times, lines were missing between two readings: calls "
            "ended faster than a journal keeps them, or a gateway started again",
            err=True,
        )
    programs = {line.program for line in lines}
    typer.echo(f"{out}: {len(lines)} calls of {len(programs)} programs")


def _follow(journals: Journals, seconds: float, out: Path | None) -> list[Line]:
    """Return the lines of the journals, and of the next seconds. They are also written to `out`.
    Raises TuneError if a gateway does not answer the first time.
    """
    lines: list[Line] = []
    until = time.monotonic() + seconds
    with suppress(KeyboardInterrupt):
        while True:
            try:
                found = list(journals.new())
            except TuneError as error:
                if not lines:
                    raise
                # It may come back.
                typer.echo(f"weft record: {error}", err=True)
                found = []
            lines += [line for _, line in found]
            if out is not None:
                with out.open("ab") as file:
                    file.writelines(raw + b"\n" for raw, _ in found)
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(_EVERY_S, left_s))
    return lines


def _write(out: Path, format_: Format, lines: Sequence[Line]) -> None:
    programs = recorded(latest((line for line in lines if line.answered), 0))
    if format_ is Format.MOONCAKE:
        with out.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in mooncake(programs))
        return
    out.mkdir()
    for number, one in enumerate(programs):
        (out / f"trace-{number:06}.json").write_text(json.dumps(weka(one)))


if __name__ == "__main__":
    record()
