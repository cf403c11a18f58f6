"""Commands that install a missing package, in a checkout and elsewhere."""

from __future__ import annotations

from pathlib import Path

# gateway/weft_run in a checkout; site-packages/weft_run otherwise.
_CHECKOUT = (Path(__file__).parents[2] / "gateway" / "weft_run").is_dir()


def command(extra: str = "") -> str:
    """Return the command that installs the packages of an extra of `weft-gateway`."""
    if _CHECKOUT:
        return "make install"
    return f"pip install 'weft-gateway[{extra}]'" if extra else "pip install weft-gateway"
