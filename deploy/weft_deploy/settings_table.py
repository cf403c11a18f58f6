"""The settings in docs/deploy.md, written from the code: `python -m weft_deploy.settings_table`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, Final

from weft_gateway.config import Settings

PAGE: Final = Path(__file__).parents[2] / "docs" / "deploy.md"
BEGIN: Final = "<!-- settings: written by python -m weft_deploy.settings_table -->"
END: Final = "<!-- end of settings -->"


def table() -> str:
    """A Markdown table: variable, default, limits, what it is."""
    rows = ["| variable | default | limits | what it is |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        cells = (
            f"`{Settings.model_config['env_prefix']}{name.upper()}`",
            _default(field.default),
            _limits(field.metadata),
            field.description or "",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def rewritten(page: str) -> str:
    """The page with the table put between its marks. ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{BEGIN!r} and {END!r} must be in the page")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    """Write the page again."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE)


def _default(value: Any) -> str:
    plain = value.value if isinstance(value, Enum) else value
    if plain in ("", ()):
        return "empty"
    if isinstance(plain, float) and plain.is_integer():
        plain = int(plain)
    return f"`{str(plain).lower() if isinstance(plain, bool) else plain}`"


def _limits(constraints: list[Any]) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    signs |= {"min_length": "length >=", "max_length": "length <="}
    found = [
        f"{sign} {getattr(constraint, name)}"
        for constraint in constraints
        for name, sign in signs.items()
        if getattr(constraint, name, None) is not None
    ]
    return ", ".join(found)


if __name__ == "__main__":
    main()
