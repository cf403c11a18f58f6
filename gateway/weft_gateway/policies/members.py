"""Rules for members: which replicas are members, and when one may be deleted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from weft_gateway.model.member import Member, MemberState
from weft_gateway.model.record import record

# Maximum members with those of the settings. Placing a call visits each, and so does each round of
# health checks.
MAX_MEMBERS: Final = 256
# Maximum records of removed replicas.
MAX_REMOVED: Final = 1024


def effective(settings: Mapping[str, str], records: Mapping[str, Member]) -> dict[str, Member]:
    """Return the members by name: the replicas of the settings, then added ones.

    settings: URLs by name. A replica of the settings is a member unless its record says that it was
    removed. It keeps its own URL: gateways may reach a replica at different addresses.
    """
    found: dict[str, Member] = {}
    for name, url in settings.items():
        known = records.get(name)
        if known is None:
            found[name] = Member(name, url)
        elif known.state is not MemberState.REMOVED:
            found[name] = replace(known, url=url)
    added = {
        name: known
        for name, known in records.items()
        if name not in settings and known.added and known.state is not MemberState.REMOVED
    }
    return found | added


def forgotten(records: Mapping[str, Member]) -> list[str]:
    """Return the names of removed replicas whose records must go: the oldest over the limit."""
    removed = [known for known in records.values() if known.state is MemberState.REMOVED]
    removed.sort(key=lambda known: known.since_s)
    return [known.name for known in removed[: max(0, len(removed) - MAX_REMOVED)]]


@record
class Use:
    """The use of a replica. behind: gateways that have not confirmed the latest changes, None
    if the store is away. homes: programs that have it as their home. dead: its process has ended,
    so no context is left there. background: a gateway knows a response in the background. running:
    its engine's requests, None if it does not report them.
    """

    in_flight: int
    homes: int
    behind: int | None = 0
    dead: bool = False
    background: bool = False
    running: int | None = None


def obstacles(member: Member, use: Use, now_s: float) -> list[str]:
    """Return why the replica must not be deleted yet; empty if it may be."""
    if member.state is not MemberState.DRAINING:
        return ["it does not drain"]
    found = []
    if use.behind is None:
        found.append("Redis is away, so the calls of other gateways are unknown")
    elif use.behind:
        found.append(f"{_many(use.behind, 'gateway')} must still confirm the drain")
    if use.in_flight:
        found.append(f"{_many(use.in_flight, 'call')} in flight")
    left_s = member.since_s + member.drain_s - now_s
    if use.homes and left_s > 0 and not use.dead:
        found.append(f"home of {_many(use.homes, 'program')} for {left_s:.0f} s at most")
    if use.background and not use.dead:
        found.append("a response is generated in the background")
    if use.running and not use.dead:
        found.append(f"{_many(use.running, 'request')} in its engine")
    return found


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
