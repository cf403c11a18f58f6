"""Tenants that send only first turns: most of these are not looked up. Pure.

A classifier or a batch sends thousands of first turns that no call continues. A lookup costs such a
call several times the rest of the gateway's work. If a call continues a first turn that was not
looked up, its program lacks that first call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from weft_gateway.transcripts.transcript import expanded

# A tenant's first turns in a row without any relation to other calls, before some are skipped.
ALONE: Final = 1024
# Then one in this many is looked up, to find first turns that quote each other's answers.
SAMPLED: Final = 16
# Tenants whose counts are kept.
_TENANTS: Final = 4096
# An agent has tools and continues.
_OF_AGENTS: Final = frozenset({"tools", "functions"})
_OF_CLIENTS: Final = ("user", "system", "developer")


class FirstTurns:
    """Counts the first turns in a row of each tenant."""

    def __init__(self) -> None:
        self._alone: OrderedDict[str, int] = OrderedDict()

    def skips(self, tenant: str, body: Mapping[str, Any]) -> bool:
        """Whether a call needs no lookup. body: its parsed body."""
        count = self._alone.get(tenant, 0)
        if count < ALONE or not is_first_turn(body):
            return False
        self._alone[tenant] = count + 1
        return count % SAMPLED != 0

    def looked_up(self, tenant: str, body: Mapping[str, Any], new: bool) -> None:
        """Count a lookup. new: it found no relation to another call."""
        if not (new and is_first_turn(body)):
            self._alone.pop(tenant, None)
            return
        count = self._alone.get(tenant, 0)
        if count < ALONE:
            self._alone[tenant] = count + 1
            if len(self._alone) > _TENANTS:
                self._alone.popitem(last=False)


def is_first_turn(body: Mapping[str, Any]) -> bool:
    """Whether a prompt has messages of the client only, and no tools."""
    messages = body.get("messages")
    return (
        isinstance(messages, list)
        and _OF_AGENTS.isdisjoint(body)
        and all(
            isinstance(one, dict) and one.get("role") in _OF_CLIENTS for one in expanded(messages)
        )
    )
