"""Records what a command of the command line runs."""

from __future__ import annotations

from types import ModuleType
from typing import Any


class Recorder(ModuleType):
    """Replaces a module that a command imports; records the options that the command runs with."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name == "run":
            return lambda *given, **named: self.calls.append(given[0] if given else named) or 7
        return lambda **options: options
