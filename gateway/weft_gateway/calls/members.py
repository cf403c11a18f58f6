"""Adds, drains and removes replicas while calls run.

The store has the changes, and every gateway applies them to its registry. A change is decided on
the latest version of the store and written only if that version is still the latest, so changes
through several gateways exclude each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Final

import httpx
from weft_run import urls

from weft_gateway.calls.background import BackgroundCalls
from weft_gateway.engine.described import engine_requests, is_gateway
from weft_gateway.engine.fetch import EngineClient
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.errors import ApiError
from weft_gateway.model.member import Member, Members, MemberState
from weft_gateway.policies.members import MAX_MEMBERS, Use, effective, forgotten, obstacles
from weft_gateway.programs.members import MemberStore
from weft_gateway.programs.table import ProcessTable, TableUnavailable

log = logging.getLogger(__name__)

_EVERY_S: Final = 0.5
# Attempts to write a change while other gateways write, too.
_ATTEMPTS: Final = 64
# Calls that were placed before the removal of their replica may open until then.
_KEEP_S: Final = 15.0
_METRICS_WITHIN_S: Final = 2.0
_PROBE_WITHIN_S: Final = 2.0


@dataclass(slots=True)
class Status:
    """A member and its use. obstacles: why it must not be deleted yet."""

    member: Member
    replica: Replica
    in_flight: int
    homes: int
    obstacles: list[str]


Changes = Mapping[str, Member | None]


@dataclass(slots=True, eq=False)
class Membership:
    """The members of this gateway. settings: URLs by name. gone: called with the name of a replica
    that was removed and has no calls left. gateways: the number of gateways that share the members.
    """

    store: MemberStore
    registry: Registry
    table: ProcessTable
    client: EngineClient
    background: BackgroundCalls
    settings: Mapping[str, str]
    gone: Callable[[str], None]
    keep_s: float = _KEEP_S
    gateways: int = field(default=1, init=False)
    _members: dict[str, Member] = field(default_factory=dict, init=False)
    _version: str | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self._members = effective(self.settings, {})

    async def run(self) -> None:
        """Apply changes by other gateways, and release removed replicas, until cancelled."""
        while True:
            try:
                await self.sync()
                if self.registry.removed:
                    in_flight = await self.table.count()
                    for name in self.registry.drop_removed(in_flight, self.keep_s):
                        log.info("replica %s is gone", name)
                        self.gone(name)
            except TableUnavailable as error:
                log.debug("members cannot be read: %s", error)
            await asyncio.sleep(_EVERY_S)

    async def sync(self) -> Members:
        """Read and apply the members. Raises TableUnavailable."""
        async with self._lock:
            return await self._sync()

    async def _sync(self) -> Members:
        latest = await self.store.read(self.background.replicas())
        self.gateways = latest.gateways
        if latest.version != self._version:
            self._version = latest.version
            self._apply(latest)
        return latest

    def _apply(self, latest: Members) -> None:
        registry, members = self.registry, effective(self.settings, latest.records)
        for replica in list(registry):
            member = members.get(replica.name)
            if member is None or member.url != replica.url:
                registry.remove(replica.name)
                log.warning("replica %s is removed", replica.name)
        for name, member in members.items():
            known = registry.get(name)
            if known is None:
                known = registry.add(name, member.url)
                # Its models and kind are learned at once.
                registry.suspicion.set()
                log.info("replica %s is added", name)
            drains = member.state is MemberState.DRAINING
            if drains != (known.homes_until is not None):
                log.info("replica %s %s", name, "drains" if drains else "serves again")
            until_s = member.since_s + member.drain_s - latest.now_s
            known.homes_until = monotonic() + until_s if drains else None
        self._members = members

    async def add(self, name: str, url: str) -> tuple[str, bool]:
        """Add a replica. name: "" to use its address. Returns its name, and whether it is new.
        Raises ApiError and TableUnavailable, as the other changes do, and ValueError if the name or
        the URL is invalid.
        """
        url = urls.replica_url(url)
        where = urls.address(url)
        known = named = urls.replica_name(name) if name else urls.named_replica(url)[0]
        if await self._is_gateway(url):
            raise ApiError(
                400,
                "replica_is_gateway",
                f"The server at {where} is a Weft gateway. Add the engines behind it instead.",
            )

        def decide(latest: Members) -> Changes:
            nonlocal known
            known = named
            member = self._members.get(named)
            if member is not None:
                if urls.address(member.url) != where:
                    raise _conflict("replica_exists", f"{named} is the name of another replica.")
                return {}
            for other in self._members.values():
                if urls.address(other.url) == where:
                    if name:
                        raise _conflict(
                            "replica_exists", f"The replica has the name {other.name} already."
                        )
                    known = other.name
                    return {}
            if len(self._members) >= MAX_MEMBERS:
                raise _conflict("too_many_replicas", f"At most {MAX_MEMBERS} replicas are allowed.")
            return {named: Member(named, url, since_s=latest.now_s, added=True)}

        new = await self._change(decide)
        return known, new

    async def drain(self, name: str, drain_s: float, *, force: bool) -> None:
        """Let a replica take no new programs; see `weft_gateway.model.Intake`. force: even if it is
        the last one that serves a model.
        """

        def decide(latest: Members) -> Changes:
            member = self._member(name)
            if member.state is MemberState.DRAINING:
                if member.drain_s == drain_s:
                    return {}
                return {name: replace(member, drain_s=drain_s)}
            lost = [] if force else self._only_here(name)
            if lost:
                raise _conflict(
                    "last_replica",
                    f"No other replica takes calls for {', '.join(lost)[:256]}. Add one, or use "
                    "?force=true.",
                )
            since_s = latest.now_s
            draining = MemberState.DRAINING
            return {name: replace(member, state=draining, since_s=since_s, drain_s=drain_s)}

        await self._change(decide)

    async def resume(self, name: str) -> None:
        """End a drain."""

        def decide(latest: Members) -> Changes:
            member = self._member(name)
            if member.state is MemberState.SERVING:
                return {}
            added = Member(name, member.url, since_s=latest.now_s, added=True)
            return {name: added if member.added else None}

        await self._change(decide)

    async def remove(self, name: str, *, force: bool) -> None:
        """Remove a replica. Its calls in flight continue. Raises ApiError 409 if it is in use,
        unless `force` is set.
        """
        checked = None if force else (await self.one(name))
        if checked is not None and checked.obstacles:
            raise _conflict(
                "replica_in_use",
                f"{name} cannot be removed: {'; '.join(checked.obstacles)}. Drain it and wait for "
                "safe_to_delete, or use ?force=true.",
            )

        def decide(latest: Members) -> Changes:
            member = self._member(name)
            if checked is not None and member != checked.member:
                raise _conflict("replica_in_use", f"{name} was changed meanwhile. Try again.")
            gone = replace(member, state=MemberState.REMOVED, since_s=latest.now_s)
            over = dict.fromkeys(forgotten({**latest.records, name: gone}))
            return {name: gone, **over}

        await self._change(decide)

    async def status(self, name: str = "") -> list[Status]:
        """Return the members, or the one of this name, and their use."""
        behind: int | None = None
        background: frozenset[str] = frozenset()
        now_s = time()
        try:
            latest = await self.sync()
            behind, background, now_s = latest.behind, latest.background, latest.now_s
        except TableUnavailable as error:
            log.debug("members cannot be read: %s", error)
        in_flight, homes = await self.table.count(), await self.table.homes()
        if self.table.local:
            behind = None

        async def of(member: Member, replica: Replica) -> Status:
            calls, programs = in_flight.get(member.name, 0), homes.get(member.name, 0)
            dead, busy = replica.circuit.dead, member.name in background
            use = Use(calls, programs, behind, dead, busy)
            reasons = obstacles(member, use, now_s)
            if not reasons and not dead:
                # Requests that no gateway knows, such as background responses of a gateway that
                # was killed.
                use = replace(use, running=await self._running(replica))
                reasons = obstacles(member, use, now_s)
            return Status(member, replica, calls, programs, reasons)

        wanted = [
            of(member, replica)
            for member in self._members.values()
            if name in ("", member.name) and (replica := self.registry.get(member.name))
        ]
        return await asyncio.gather(*wanted)

    async def one(self, name: str) -> Status:
        """Return one member and its use. Raises ApiError 404."""
        found = await self.status(name)
        if not found:
            raise _unknown(name)
        return found[0]

    async def _change(self, decide: Callable[[Members], Changes]) -> bool:
        """Write a change, and apply it. Returns False if there was nothing to change."""
        async with self._lock:
            for _ in range(_ATTEMPTS):
                latest = await self._sync()
                changes = decide(latest)
                if not changes:
                    return False
                if await self.store.write(changes, latest.version):
                    await self._sync()
                    return True
        raise _conflict("replicas_changing", "Other changes are in progress. Try again.")

    def _member(self, name: str) -> Member:
        member = self._members.get(name)
        if member is None:
            raise _unknown(name)
        return member

    def _only_here(self, name: str) -> list[str]:
        """Return the models that no other replica could take calls for."""
        replica = self.registry.get(name)
        if replica is None or not replica.circuit.alive:
            return []
        others = [
            other
            for other in self.registry
            if other is not replica and other.homes_until is None and other.circuit.alive
        ]
        served = set().union(*(other.served for other in others))
        return sorted(replica.served - served)

    async def _is_gateway(self, url: str) -> bool:
        """Whether a Weft gateway answers there. False if nothing answers in time: then its health
        checks find out.
        """
        try:
            answer = await self.client.probe(f"{url}/health", _PROBE_WITHIN_S)
        except httpx.HTTPError:
            return False
        return is_gateway(answer.body)

    async def _running(self, replica: Replica) -> int | None:
        try:
            answer = await self.client.fetch(replica, "/metrics", _METRICS_WITHIN_S)
        except httpx.HTTPError:
            return None
        return engine_requests(answer.body.decode("utf-8", "replace"))


def _conflict(code: str, message: str) -> ApiError:
    return ApiError(409, code, message)


def _unknown(name: str) -> ApiError:
    return ApiError(404, "replica_not_found", f"No replica with the name {name[:128]!r}.")
