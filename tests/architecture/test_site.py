"""The documentation builds as a site without warnings, and its menu lists every page."""

from __future__ import annotations

import os
import subprocess
import sys

import yaml
from support.sources import ROOT
from support.waiting import RUN_S


def test_the_site_builds_without_warnings(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "reference" / "settings" / "index.html").is_file()


def test_the_menu_lists_every_page() -> None:

    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert _targets(menu) == pages


def _targets(node: object) -> set[str]:
    if isinstance(node, str):
        return {node}
    children = node.values() if isinstance(node, dict) else node
    assert isinstance(children, list) or isinstance(node, dict)
    return set().union(*map(_targets, children))  # type: ignore[arg-type]
