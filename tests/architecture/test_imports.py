"""Imports: the contracts in pyproject.toml, and modules that need only the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.sources import PACKAGES, ROOT, imported, sources

# Import contracts cannot express "the standard library only".
STANDARD_LIBRARY_ONLY = [
    *sources("gateway/weft_gateway/model"),
    Path("deploy/weft_deploy/local/install.py"),
]
HEAVY = ("torch", "vllm", "transformers", "numpy")


def run(*command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def test_the_contracts_hold() -> None:
    done = run("-c", "import sys; from importlinter.cli import lint_imports_command as c; c()")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


@pytest.mark.parametrize("file", STANDARD_LIBRARY_ONLY, ids=str)
def test_a_file_needs_the_standard_library_only(file: Path) -> None:
    own = ".".join(file.parts[1:3])
    foreign = {
        name
        for name in imported(file)
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith(own)
    }
    assert not foreign


@pytest.mark.parametrize("module", ["weft_gateway.app", "weft_gateway.serve", "weft_gateway.cli"])
def test_the_gateway_runs_without_an_engine(module: str) -> None:
    # None in sys.modules makes an import fail like a package that is not installed.
    blocked = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}));"
    done = run("-c", f"{blocked} import {module}")
    assert done.returncode == 0, done.stderr


def test_a_blocked_import_fails() -> None:
    done = run("-c", "import sys; sys.modules['numpy'] = None; import numpy")
    assert done.returncode != 0


def test_help_imports_no_server_and_no_engine() -> None:
    code = (
        "import sys, weft_gateway.cli as cli\n"
        "try: cli.app(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        f"found = {{'fastapi', 'uvicorn', *{HEAVY!r}}} & sys.modules.keys()\n"
        "assert not found, found\n"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["up", "replica", "bench"])
def test_help_of_a_command_imports_its_options_only(command: str) -> None:
    code = (
        "import sys, weft_gateway.cli as cli\n"
        f"try: cli.app([{command!r}, '--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "own = {name for name in sys.modules if name.startswith('weft')}\n"
        "parts = {name for name in own if '.' in name and name.split('.')[1] not in "
        "('cli', 'options')}\n"
        "assert not parts, parts\n"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr


def test_the_list_of_packages_is_complete() -> None:
    found = {file.parents[1].name for file in ROOT.glob("*/*/__init__.py")}
    assert found == set(PACKAGES)
