"""Files, modules and commands in the documentation exist."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.sources import PACKAGES, ROOT
from weft_bench.workloads.arrivals import KINDS
from weft_bench.workloads.registry import WORKLOADS
from weft_bench.workloads.traces.published import PUBLISHED

PAGES = sorted(
    page.relative_to(ROOT) for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
TOPS = (*PACKAGES, "tests", "docs", "requirements")
PATH = re.compile(rf"`((?:{'|'.join(TOPS)})(?:/[\w./*-]+)?)`")
MODULE = re.compile(r"python -m (weft[\w.]*)")


def text(page: Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_link_targets_exist(page: Path) -> None:
    for target in LINK.findall(text(page)):
        assert (ROOT / page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_paths_exist(page: Path) -> None:
    for path in PATH.findall(text(page)):
        assert list(ROOT.glob(path)), path


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_modules_in_commands_exist(page: Path) -> None:
    for module in MODULE.findall(text(page)):
        spec = find_spec(module)
        assert spec, module
        assert spec.submodule_search_locations is None or find_spec(f"{module}.__main__"), module


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_make_commands_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in re.findall(r"^ {4}make (.*)$|`make ([^`]*)`", text(page), re.MULTILINE):
        target = " ".join(line).split()[0]
        assert target in targets, target


def test_the_structure_page_lists_every_package() -> None:
    page = text(Path("docs/internals/structure.md"))
    packages = {
        init.parent.relative_to(ROOT).as_posix() for init in ROOT.glob("gateway/*/*/__init__.py")
    }
    for package in (*PACKAGES, *packages):
        assert package in page, package
    suites = {path.name for path in (ROOT / "tests").iterdir() if list(path.rglob("test_*.py"))}
    for suite in suites:
        assert f"tests/{suite}" in page, suite


def test_the_workloads_page_has_a_row_for_each_workload() -> None:
    page = text(Path("docs/results/workloads.md"))
    for name in (*WORKLOADS, *PUBLISHED, *KINDS):
        assert f"| `{name}` |" in page, name
