"""When certain tokens of answers were there, whether steps were taken one by one or leapt over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class TokenTimes:
    """Watches calls of one engine for tokens of their answers, counted from 1."""

    def __init__(self) -> None:
        self._wanted: dict[str, Sequence[int]] = {}
        self._found: dict[str, list[float]] = {}

    def watch(self, call: str, tokens: Sequence[int]) -> None:
        """Find out when these tokens come. tokens: in rising order, some may be equal."""
        self._wanted[call] = tokens
        self._found[call] = []

    def passed(self, requests: Mapping[str, Any], ends: Sequence[float]) -> None:
        """So many steps are over, that ended at these instants, and what they brought is in the
        requests: a token a step, or none."""
        for call, wanted in self._wanted.items():
            request = requests.get(call)
            if request is None:
                continue
            found = self._found[call]
            # The last token came with the last step; those before it were told before.
            done = len(request._output_token_ids)
            while len(found) < len(wanted) and wanted[len(found)] <= done:
                found.append(ends[wanted[len(found)] - done - 1])

    def take(self, call: str, ended: float) -> list[float]:
        """When each came, of a call that ended at this instant, with its last token; empty if it
        was not watched."""
        wanted, found = self._wanted.pop(call, ()), self._found.pop(call, [])
        return found + [ended] * (len(wanted) - len(found))
