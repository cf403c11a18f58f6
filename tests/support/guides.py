"""The settings in the guides, so that tests run exactly these."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In the guides: the address of `make up`, and an example of an API key.
_URL = "http://127.0.0.1:8080"
KEY = "my-key"


def packages(name: str) -> tuple[str, ...]:
    """Return the packages with which a guide was tried, as `name@version`.

    They are in its line "Tried with", each as `name` and its version.
    """
    tried = _page(name).partition("Tried with ")[2].partition("\n\n")[0]
    return tuple("@".join(found) for found in re.findall(r"`([\w@/.-]+)`\s+(\d+(?:\.\w+)*)", tried))


def blocks(name: str, url: str, heading: str = "What to set") -> list[str]:
    """Return the code blocks of a guide's section, for the gateway at `url`."""
    section = _page(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", section, re.MULTILINE)
    return [
        re.sub("^ {4}", "", text, flags=re.MULTILINE).strip().replace(_URL, url) for text in found
    ]


def variables(text: str) -> dict[str, str]:
    """Return the variables that the lines `export NAME=value` of a block set."""
    return dict(re.findall(r"^export (\w+)=(\S*)$", text, re.MULTILINE))


def _page(name: str) -> str:
    return (ROOT / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")
