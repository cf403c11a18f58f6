"""The replicas: their connections, served models, health and drains. Replicas can be added and
removed while calls run.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from weft_run.yaml_errors import nearest

from weft_gateway.engine.circuit import Circuit
from weft_gateway.engine.engine_request import ReplicaKind
from weft_gateway.engine.errors import ReplicaError, Withdrawn
from weft_gateway.engine.headers import request_head
from weft_gateway.engine.pool import MAX_ANSWER_BYTES, Timeouts, Upstream
from weft_gateway.engine.response import Headers
from weft_gateway.model import Intake, ReplicaView
from weft_gateway.policies.costs import EngineCosts
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex

log = logging.getLogger(__name__)

_ALL: Final = Intake.ALL
# Prefix cache of replicas that do not report it, tokens.
CACHE_TOKENS: Final = 131_072
# No alias stands for a longer name of a model.
_MOST_NAME: Final = 256


@dataclass(slots=True)
class Replica:
    """One engine. models: served models by id, as the engine describes them; empty: not yet
    learned. refuses: the gateway's credentials that the engine last refused, `api_key` or
    `engine_secret`. cache_tokens: the size of its KV cache, if it reports one and does not run the
    plugin, which admits programs by itself; otherwise 0. slots: calls that it runs at once, 0 if it
    does not report them. costs: of its steps, None if it does not report them. homes_until: None if
    it serves; if it drains, the time until which programs keep it as their home, on the monotonic
    clock. removed_at: on the same clock. doubted: its models are learned again with the next check.
    """

    name: str
    url: str
    upstream: Upstream
    head: bytes
    api_key: str = ""
    kind: ReplicaKind = ReplicaKind.UNKNOWN
    circuit: Circuit = field(default_factory=Circuit)
    models: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    served: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()
    cache_tokens: int = 0
    slots: int = 0
    costs: EngineCosts | None = None
    homes_until: float | None = None
    removed_at: float = 0.0
    doubted: bool = False
    _view: ReplicaView | None = None

    def learn(self, cards: Sequence[Mapping[str, object]]) -> None:
        """Store the entries of the replica's /v1/models. Each has a string `id`."""
        self.models = {str(card["id"]): card for card in cards}
        self.served = frozenset(self.models)

    @property
    def intake(self) -> Intake:
        """The calls that it takes now."""
        if self.homes_until is None:
            return Intake.ALL
        return Intake.HOMES if monotonic() < self.homes_until else Intake.NONE

    def view(self, in_flight: int) -> ReplicaView:
        """Return this replica as seen by policies; the same object while nothing has changed.
        in_flight: a negative count is invalid, and counts as 0.
        """
        if in_flight < 0:
            in_flight = 0
        view, intake = self._view, _ALL if self.homes_until is None else self.intake
        if (
            view is None
            or view.in_flight != in_flight
            or view.healthy is not self.circuit.healthy
            or view.models is not self.served
            or view.intake is not intake
        ):
            view = ReplicaView(self.name, self.served, self.circuit.healthy, in_flight, intake)
            self._view = view
        return view

    def request_head(self, method: str, target: bytes, fields: Headers, length: int) -> bytes:
        """Return the head of a request to this replica. `target`: path and query; `length`: body
        size in bytes. Raises UnsafeHead.
        """
        return request_head(method, self.upstream.prefix, target, self.head, fields, length)


class Registry:
    """All replicas, in the order of the settings, then of their addition.

    A removed replica is no member any more, but its calls in flight continue: `registry[name]`
    returns it until `drop_removed`.

    urls: base URLs by name at the start. All gateways use the same names (`weft_run.urls`),
    since homes and counts in a shared process table refer to them. cache_tokens: prefix cache
    capacity of replicas that do not report one. max_answer_bytes: size limit of an answer that is
    not a stream. prefixes: prompt prefixes sent to each replica; call `forget` on it when a replica
    has lost its cache. aliases: see `resolved`.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        timeouts: Timeouts,
        api_key: str = "",
        cache_tokens: int = CACHE_TOKENS,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.aliases = aliases or {}
        self._patterns = [
            # Only `*` is special. The expression does not try a text again for each `*`.
            (re.compile(fnmatch.translate(re.sub(r"[?[]", r"[\g<0>]", alias))), model)
            for alias, model in self.aliases.items()
        ]
        self.prefixes = PrefixAffinityIndex(cache_tokens)
        self._timeouts = timeouts
        self._api_key = api_key
        self._max_answer_bytes = max_answer_bytes
        self._replicas: dict[str, Replica] = {}
        self._removed: list[Replica] = []
        # Set when a call has failed, so that the next health check runs at once.
        self.suspicion = asyncio.Event()
        for name, url in urls.items():
            self.add(name, url)

    def add(self, name: str, url: str) -> Replica:
        """Add a replica, or take back a removed one that has not been dropped yet."""
        for replica in self._removed:
            if (replica.name, replica.url) == (name, url):
                self._removed.remove(replica)
                break
        else:
            upstream = Upstream(url, self._timeouts, max_answer_bytes=self._max_answer_bytes)
            head = b"host: %b\r\n" % upstream.authority.encode()
            if self._api_key:
                head += b"authorization: Bearer %b\r\n" % self._api_key.encode()
            replica = Replica(name, url, upstream, head, self._api_key)
        replica.homes_until = None
        self._replicas[name] = replica
        return replica

    def remove(self, name: str) -> None:
        """Remove a replica. New calls do not see it, and its calls in flight continue."""
        replica = self._replicas.pop(name)
        replica.removed_at = monotonic()
        self._removed.append(replica)

    def drop_removed(self, in_flight: Mapping[str, int], keep_s: float) -> list[str]:
        """Close the connections of removed replicas without calls, `keep_s` seconds after their
        removal or later: a call may be about to open there. Return the names that are gone.
        """
        gone = [
            replica
            for replica in self._removed
            if monotonic() >= replica.removed_at + keep_s
            and not replica.upstream.busy
            and (replica.name in self._replicas or not in_flight.get(replica.name))
        ]
        for replica in gone:
            self._removed.remove(replica)
            replica.upstream.close()
        names = {replica.name for replica in gone}
        kept = self._replicas.keys() | {replica.name for replica in self._removed}
        for name in names - kept:
            self.prefixes.drop(name)
        return sorted(names - kept)

    @property
    def removed(self) -> bool:
        """Whether `drop_removed` may find something."""
        return bool(self._removed)

    def upstreams(self) -> list[Upstream]:
        """Return the connections to all replicas, including removed ones."""
        return [replica.upstream for replica in (*self, *self._removed)]

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    def __getitem__(self, name: str) -> Replica:
        replica = self._replicas.get(name)
        if replica is not None:
            return replica
        for replica in self._removed:
            if replica.name == name:
                return replica
        raise KeyError(name)

    def get(self, name: str) -> Replica | None:
        """Return the replica of that name, None if it is not a member."""
        return self._replicas.get(name)

    def views(self, in_flight: Mapping[str, int]) -> tuple[ReplicaView, ...]:
        """Return the replicas as seen by policies. `in_flight`: open calls per replica."""
        return tuple([r.view(in_flight.get(r.name, 0)) for r in self._replicas.values()])

    def able(self, *, draining: bool = False) -> list[Replica]:
        """Return the replicas that can receive calls: the healthy ones, then those that are alive
        and whose models no healthy one serves. draining: include draining ones, even if others
        serve.
        """
        healthy = [replica for replica in self if replica.circuit.healthy]
        served = frozenset[str]().union(*(replica.served for replica in healthy))
        able = healthy + [
            replica
            for replica in self
            if replica.circuit.alive
            and not replica.circuit.healthy
            and (not healthy or (replica.served and served.isdisjoint(replica.served)))
        ]
        serving = [replica for replica in able if replica.homes_until is None]
        return able if draining or not serving else serving

    def serving(self) -> list[Replica]:
        """Return the replicas that take calls of new programs: those that are alive and do not
        drain.
        """
        return [r for r in self if r.circuit.alive and r.homes_until is None]

    def last_resort(self, in_flight: Mapping[str, int]) -> tuple[ReplicaView, ...]:
        """Return the same as `views`, but count replicas that are alive as healthy. For a call that
        no healthy replica takes: the failures may be caused by the calls, and refusing all of them
        helps no client.
        """
        return tuple(
            ReplicaView(
                r.name, r.served, r.circuit.alive, max(0, in_flight.get(r.name, 0)), r.intake
            )
            for r in self
        )

    def models(self) -> dict[str, Mapping[str, object]]:
        """Return every served model by id. The first replica's description takes precedence."""
        union: dict[str, Mapping[str, object]] = {}
        for replica in self:
            for name, card in replica.models.items():
                union.setdefault(name, card)
        return union

    def resolved(self, model: str) -> str:
        """Return the served model that a client's name means: of the first alias that matches, in
        which `*` is any text, unless a replica serves a model of this name.
        """
        for pattern, target in self._patterns if len(model) <= _MOST_NAME else ():
            if pattern.fullmatch(model) and not any(model in one.served for one in self):
                return target
        return model

    def listed(self) -> dict[str, Mapping[str, object]]:
        """Return `models`, and the aliases of these that are plain names."""
        models = self.models()
        aliases = {name: models.get(model) for name, model in self.aliases.items()}
        named = {name: {**card, "id": name} for name, card in aliases.items() if card is not None}
        return {name: card for name, card in named.items() if "*" not in name} | models

    def card(self, model: str) -> Mapping[str, object] | None:
        """Return the description of a model or alias, None if it is unknown."""
        card = self.models().get(self.resolved(model))
        return None if card is None else {**card, "id": model}

    def context(self, model: str) -> int:
        """Return the context length of a served model in tokens, 0 if unknown."""
        for replica in self._replicas.values():
            length = replica.models.get(model, {}).get("max_model_len")
            if isinstance(length, int):
                return length
        return 0

    def knows(self, model: str) -> bool:
        """Whether a replica serves `model`, which is no alias, or may serve it because its models
        are not yet known.
        """
        known = False
        for replica in self._replicas.values():
            if model in replica.served or (not replica.served and replica.circuit.healthy):
                return True
            known = known or bool(replica.served)
        return not known

    def unknown(self, model: str) -> str:
        """Return the end of a message about a model that no replica serves, with the nearest served
        one; "" if a replica may serve it.
        """
        if self.knows(self.resolved(model)):
            return ""
        shown = model[:256]
        return f"{shown!r} does not exist or is not served here{nearest(shown, self.listed())}"

    def failed(self, name: str, error: ReplicaError, tenant: str = "") -> None:
        """Record that a replica failed a call of `tenant`."""
        replica = self._replicas.get(name)
        if replica is None or isinstance(error, Withdrawn):
            return
        before = replica.circuit
        replica.circuit = before.failed(error, tenant)
        if before.healthy and not replica.circuit.healthy:
            what = ascii(str(error)[:256])[1:-1]  # It may be the engine's text.
            log.warning("replica %s is out: %s (%s)", name, what, error.code)
            self.prefixes.forget(name)
        self.suspicion.set()

    def doubt(self, name: str) -> None:
        """A replica answered that it does not have what a call names: its models may be others."""
        replica = self._replicas.get(name)
        if replica is not None:
            replica.doubted = True
            self.suspicion.set()

    def succeeded(self, name: str, tenant: str = "") -> None:
        """Record that a replica answered a call of `tenant`."""
        replica = self._replicas.get(name)
        if replica is None:
            return
        replica.circuit = replica.circuit.succeeded(tenant)

    def close(self) -> None:
        """Close every connection."""
        for upstream in self.upstreams():
            upstream.close()
