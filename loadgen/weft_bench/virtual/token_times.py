"""Instants of selected tokens of answers, for single steps and for leaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class TokenTimes:
    """Watches calls of one engine for tokens of their answers, counted from 1."""

    def __init__(self) -> None:
        self._wanted: dict[str, Sequence[int]] = {}
        self._found: dict[str, list[float]] = {}

    def watch(self, call: str, tokens: Sequence[int]) -> None:
        """Record when these tokens arrive. tokens: ascending, repeats allowed."""
        self._wanted[call] = tokens
        self._found[call] = []

    def passed(self, requests: Mapping[str, Any], ends: Sequence[float]) -> None:
        """Record steps that ended at these instants.

        The requests already contain their output: one token a step, or none.
        """
        for call, wanted in self._wanted.items():
            request = requests.get(call)
            if request is None:
                continue
            found = self._found[call]
            # The last step brought the last token. Earlier tokens were recorded before.
            done = len(request._output_token_ids)
            while len(found) < len(wanted) and wanted[len(found)] <= done:
                found.append(ends[wanted[len(found)] - done - 1])

    def take(self, call: str, ended: float) -> list[float]:
        """Return when each watched token of an ended call arrived; empty if it was not watched.

        ended: when the call ended, with its last token.
        """
        wanted, found = self._wanted.pop(call, ()), self._found.pop(call, [])
        return found + [ended] * (len(wanted) - len(found))
