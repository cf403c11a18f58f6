"""Replicas that were added, drained or removed at run time."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from weft_gateway.model.record import record


class MemberState(StrEnum):
    """The state of a replica as a member. REMOVED: it was removed at run time, even if the settings
    contain it.
    """

    SERVING = "serving"
    DRAINING = "draining"
    REMOVED = "removed"


@record
class Member:
    """One replica. since_s: time of the last change of its state, on the clock of the store; 0 for
    a replica of the settings without a change. drain_s: time for which programs keep their home on
    a draining replica, seconds. added: it was added at run time; otherwise it is a member where the
    settings contain it.
    """

    name: str
    url: str
    state: MemberState = MemberState.SERVING
    since_s: float = 0.0
    drain_s: float = 0.0
    added: bool = False


@record
class Members:
    """A snapshot of the store of members.

    version: changes with each change of `records`. records: changes at run time, by name. now_s:
    the store's clock, Unix time. gateways: those that share the store. behind: those of them that
    have not confirmed this version. background: replicas at which a gateway knows a response in the
    background.
    """

    version: str
    records: Mapping[str, Member]
    now_s: float
    gateways: int = 1
    behind: int = 0
    background: frozenset[str] = frozenset()
