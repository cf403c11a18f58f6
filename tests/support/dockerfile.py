"""Parses a Dockerfile into stages and instructions. Does not support heredocs. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stage:
    """One `FROM`. base: the image or stage that it builds on, with arguments replaced."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """Return the arguments of each instruction of a kind, in order."""
        return [argument for name, argument in self.instructions if name == word]


@dataclass
class Dockerfile:
    """A Dockerfile. arguments: build arguments before the first stage, with their defaults."""

    arguments: dict[str, str]
    stages: dict[str, Stage]

    def lineage(self, name: str) -> list[Stage]:
        """Return a stage and the stages that it builds on, the stage itself first."""
        line = []
        while name in self.stages:
            line.append(self.stages[name])
            name = self.stages[name].base
        return line

    def sources(self) -> set[str]:
        """Return the paths that the stages copy from the checkout."""
        found: set[str] = set()
        for stage in self.stages.values():
            for argument in stage.all("COPY"):
                if not argument.startswith("--from="):
                    found.update(word.rstrip("/") for word in argument.split()[:-1])
        return found


def parse(text: str, given: dict[str, str] | None = None) -> Dockerfile:
    """Parse a Dockerfile. The build arguments in `given` replace the defaults."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for word, rest in _instructions(text):
        if stage is None and word == "ARG":
            name, _, default = rest.partition("=")
            arguments[name] = (given or {}).get(name, default)
        elif word == "FROM":
            base, _, name = rest.partition(" AS ")
            for argument, value in arguments.items():
                base = base.replace(f"${{{argument}}}", value)
            stage = stages[name] = Stage(name, base)
        elif stage is not None:
            stage.instructions.append((word, rest))
    return Dockerfile(arguments, stages)


def exec_form(argument: str) -> list[str]:
    """Return the words of an ENTRYPOINT, CMD or `HEALTHCHECK ... CMD` in JSON form."""
    words: Any = json.loads(argument[argument.index("[") :])
    return [str(word) for word in words]


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = (line.strip().partition(" ") for line in joined.splitlines() if line.strip())
    return [(word.upper(), " ".join(rest.split())) for word, _, rest in pairs]
