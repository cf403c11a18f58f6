"""What a child's log says, for people: without noise, and why an engine has ended. Pure."""

from __future__ import annotations

import re
from typing import Final

# What nanobind, under Triton, tells at the end of every process that was not quite tidy.
_NOISE: Final = re.compile(
    r"nanobind: | - leaked (?:instance|type|function) | - \.\.\. skipped remainder"
    r"|See https://nanobind\.|\s*$"
)
# vLLM's words, in the engine core itself and in the API server that lost it.
_CORE_DIED: Final = re.compile(
    r"EngineCore encountered a fatal error|engine core exited unexpectedly|EngineDeadError"
)

# What vLLM says when it begins each part of its start, and how people would call the part.
_PHASES: Final = (
    ("Starting to load model", "loading the model"),
    ("Loading weights took", "warming up"),
    ("Starting vLLM server", "opening its port"),
)
STARTING: Final = "starting"


def phase(text: str, before: str = STARTING) -> str:
    """Which part of its start an engine is in, in words. before: the part that it was in when it
    was last looked at; a start does not go back."""
    names = [STARTING, *(name for _, name in _PHASES)]
    told = [name for mark, name in _PHASES if mark in text]
    return max((before, *told), key=names.index)


def clean(text: str) -> list[str]:
    """The lines that say something."""
    return [line for line in text.splitlines() if not _NOISE.match(line)]


def engine_core_died(text: str) -> bool:
    """Whether the log is that of an engine that lost its engine core. Its API server then ends in
    good order."""
    return _CORE_DIED.search(text) is not None


def end(text: str, count: int) -> str:
    """The last `count` lines that say something: after the death of an engine core, up to its last
    mention, for what follows is tidying up."""
    lines = clean(text)
    died = [number for number, line in enumerate(lines) if _CORE_DIED.search(line)]
    if died:
        lines = lines[: died[-1] + 1]
    return "\n".join(lines[-count:])
