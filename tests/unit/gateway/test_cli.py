"""The `weft` command: built-in commands and those that other packages mount."""

from __future__ import annotations

import importlib.metadata as metadata
import socket
import sys
import tomllib

import pytest
import typer
from support.sources import ROOT
from typer.testing import CliRunner
from weft_gateway.cli import GROUP, app

runner = CliRunner()
# Those of the product, and those of the bench.
MOUNTED: dict[str, str] = {}
for _file in ("pyproject.toml", "loadgen/pyproject.toml"):
    MOUNTED |= tomllib.loads((ROOT / _file).read_text())["project"]["entry-points"][GROUP]


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the installed entry points by those of this checkout."""
    all_ = [metadata.EntryPoint(name, value, GROUP) for name, value in MOUNTED.items()]
    monkeypatch.setattr(
        metadata,
        "entry_points",
        lambda group, name=None: metadata.EntryPoints(
            one for one in all_ if name in (None, one.name)
        ),
    )


@pytest.mark.usefixtures("entries")
def test_help_lists_every_command_with_its_summary() -> None:
    shown = runner.invoke(app, ["--help"]).output
    for command in ("serve", "run", *MOUNTED):
        assert f" {command} " in shown
    assert "Measure Weft" in shown


@pytest.mark.usefixtures("entries")
@pytest.mark.parametrize("command", MOUNTED)
def test_help_of_a_mounted_command_comes_from_its_package(command: str) -> None:
    (entry,) = metadata.entry_points(group=GROUP, name=command)
    theirs = runner.invoke(entry.load(), ["--help"])
    ours = runner.invoke(app, [command, "--help"])
    assert ours.exit_code == 0
    assert ours.output.splitlines()[2:] == theirs.output.splitlines()[2:]


@pytest.mark.usefixtures("entries")
@pytest.mark.parametrize("arguments", [[], ["peers"], ["--help"]], ids=" ".join)
def test_a_command_without_its_packages_is_a_one_line_error(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "weft_bench":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "weft_bench", None)
    result = runner.invoke(app, ["bench", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("weft bench: not installed: weft_bench")
    assert "make install" in line
    # The list has the other commands, and the reason for this one.
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert " serve " in shown.output
    assert "not installed" in shown.output


def test_error_in_a_mounted_command_keeps_its_exit_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = typer.Typer()
    command.command()(lambda: (_ for _ in ()).throw(typer.Exit(7)))
    entry = metadata.EntryPoint("up", "here:command", GROUP)
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda _: command)
    monkeypatch.setattr(metadata, "entry_points", lambda **_: metadata.EntryPoints([entry]))
    assert runner.invoke(app, ["up"]).exit_code == 7


def test_serve_names_an_invalid_setting_and_its_variable() -> None:
    result = runner.invoke(app, ["serve", "--redis", "http://redis"])
    assert result.exit_code == 2
    assert "redis_url (WEFT_REDIS_URL)" in result.output


def test_an_unknown_command_is_refused() -> None:
    assert runner.invoke(app, ["fly"]).exit_code == 2


def test_serve_reports_a_port_in_use() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        result = runner.invoke(app, ["serve", "--port", str(holder.getsockname()[1])])
    assert result.exit_code == 1
