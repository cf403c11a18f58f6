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
    """Return the indented code blocks of a section, for the gateway at `url`.

    name: a guide, or the path of another page.
    """
    section = re.sub(r"^```.*?^```$", "", _section(name, heading), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", section, re.MULTILINE)
    return [
        re.sub("^ {4}", "", text, flags=re.MULTILINE).strip().replace(_URL, url) for text in found
    ]


def python(name: str, url: str, heading: str) -> str:
    """Return the fenced Python of a section, for the gateway at `url`. name: as for `blocks`."""
    (found,) = re.findall(r"^```python\n(.*?)^```", _section(name, heading), re.DOTALL | re.M)
    return str(found).replace(_URL, url)


def row(agent: str, url: str) -> str:
    """Return what the README's table says to set for an agent, for the gateway at `url`."""
    (line,) = re.findall(rf"^\| \[{re.escape(agent)}\]\(.*\| (.+) \|$", _page("README.md"), re.M)
    lines = [part.strip().strip("`") for part in line.split("<br>")]
    assert len(lines) <= 6, agent
    return "\n".join(lines).replace(_URL, url)


def variables(text: str) -> dict[str, str]:
    """Return the variables that the lines `export NAME=value` of a block set."""
    return dict(re.findall(r"^export (\w+)=(\S*)$", text, re.MULTILINE))


def _section(name: str, heading: str) -> str:
    return _page(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _page(name: str) -> str:
    path = ROOT / (name if name.endswith(".md") else f"docs/guides/{name}.md")
    return path.read_text(encoding="utf-8")
