"""Reads a Dockerfile into stages and instructions. Knows no heredocs: ours has none. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stage:
    """One `FROM`. base: the image or stage that it starts from, with arguments put in."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """The arguments of each instruction of a kind, in order."""
        return [argument for name, argument in self.instructions if name == word]


@dataclass
class Dockerfile:
    """arguments: build arguments declared before the first stage, with their defaults."""

    arguments: dict[str, str]
    stages: dict[str, Stage]

    def lineage(self, name: str) -> list[Stage]:
        """A stage and the stages that it starts from, itself first."""
        line = []
        while name in self.stages:
            line.append(self.stages[name])
            name = self.stages[name].base
        return line

    def sources(self) -> set[str]:
        """What is copied from the checkout, and not from other stages."""
        found: set[str] = set()
        for stage in self.stages.values():
            for argument in stage.all("COPY"):
                if not argument.startswith("--from="):
                    found.update(word.rstrip("/") for word in argument.split()[:-1])
        return found


def parse(text: str, given: dict[str, str] | None = None) -> Dockerfile:
    """Read a Dockerfile; `given` build arguments replace the defaults."""
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
    """The words of an ENTRYPOINT, CMD or `HEALTHCHECK ... CMD` in its JSON form."""
    words: Any = json.loads(argument[argument.index("[") :])
    return [str(word) for word in words]


def _instructions(text: str) -> list[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = (line.strip().partition(" ") for line in joined.splitlines() if line.strip())
    return [(word.upper(), " ".join(rest.split())) for word, _, rest in pairs]
