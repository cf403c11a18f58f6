"""Reads logs of child processes: removes noise, and finds why an engine has ended. Pure."""

from __future__ import annotations

import re
from typing import Final

# Leak reports that nanobind, a dependency of Triton, prints when a process ends.
_NOISE: Final = re.compile(
    r"nanobind: | - leaked (?:instance|type|function) | - \.\.\. skipped remainder"
    r"|See https://nanobind\.|\s*$"
)
# vLLM's messages, from the engine core itself and from its API server.
_CORE_DIED: Final = re.compile(
    r"EngineCore encountered a fatal error|engine core exited unexpectedly|EngineDeadError"
)


def clean(text: str) -> list[str]:
    """Return the lines that are not noise."""
    return [line for line in text.splitlines() if not _NOISE.match(line)]


def engine_core_died(text: str) -> bool:
    """Whether the engine core died. The API server then ends with status 0."""
    return _CORE_DIED.search(text) is not None


def end(text: str, count: int) -> str:
    """Return the last `count` lines that are not noise.

    If the engine core died, lines after its last message are left out: they are about the shutdown.
    """
    lines = clean(text)
    died = [number for number, line in enumerate(lines) if _CORE_DIED.search(line)]
    return "\n".join(lines[: died[-1] + 1 if died else None][-count:])
