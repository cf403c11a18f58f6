"""The replicas: their connections, served models and health."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft_gateway.engine.circuit import Circuit
from weft_gateway.engine.engine_request import ReplicaKind
from weft_gateway.engine.errors import ReplicaError
from weft_gateway.engine.headers import request_head
from weft_gateway.engine.pool import MAX_ANSWER_BYTES, Timeouts, Upstream
from weft_gateway.engine.response import Headers
from weft_gateway.model import ReplicaView
from weft_gateway.policies.route.prefixes import PrefixAffinityIndex

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Replica:
    """One engine. models: served models by id, as the engine describes them; empty: not yet
    learned. refuses: the gateway's credentials that the engine last refused, `api_key` or
    `engine_secret`. cache_tokens: the size of its KV cache, if it reports one and does not run the
    plugin, which admits programs by itself; otherwise 0.
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
    _view: ReplicaView | None = None

    def learn(self, cards: Sequence[Mapping[str, object]]) -> None:
        """Store the entries of the replica's /v1/models. Each has a string `id`."""
        self.models = {str(card["id"]): card for card in cards}
        self.served = frozenset(self.models)

    def view(self, in_flight: int) -> ReplicaView:
        """Return this replica as seen by policies; the same object while nothing has changed."""
        view = self._view
        if (
            view is None
            or view.in_flight != in_flight
            or view.healthy is not self.circuit.healthy
            or view.models is not self.served
        ):
            view = ReplicaView(self.name, self.served, self.circuit.healthy, in_flight)
            self._view = view
        return view

    def request_head(self, method: str, target: bytes, fields: Headers, length: int) -> bytes:
        """Return the head of a request to this replica. `target`: path and query; `length`: body
        size in bytes. Raises UnsafeHead.
        """
        return request_head(method, self.upstream.prefix, target, self.head, fields, length)


class Registry:
    """All replicas, in the order of the settings.

    urls: base URLs by name. All gateways use the same names (`weft_gateway.urls`), since homes and
    counts in a shared process table refer to them. cache_tokens: prefix cache capacity of replicas
    that do not report one. max_answer_bytes: size limit of an answer that is not a stream.
    prefixes: prompt prefixes sent to each replica; call `forget` on it when a replica has lost its
    cache.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        timeouts: Timeouts,
        api_key: str = "",
        cache_tokens: int = 0,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.prefixes = PrefixAffinityIndex(cache_tokens)
        self._replicas: dict[str, Replica] = {}
        # Set when a call has failed, so that the next health check runs at once.
        self.suspicion = asyncio.Event()
        for name, url in urls.items():
            upstream = Upstream(url, timeouts, max_answer_bytes=max_answer_bytes)
            head = b"host: %b\r\n" % upstream.authority.encode()
            if api_key:
                head += b"authorization: Bearer %b\r\n" % api_key.encode()
            self._replicas[name] = Replica(
                name=name, url=url, upstream=upstream, head=head, api_key=api_key
            )

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    def __getitem__(self, name: str) -> Replica:
        return self._replicas[name]

    def get(self, name: str) -> Replica | None:
        """Return the replica of that name, None if the settings no longer contain it."""
        return self._replicas.get(name)

    def views(self, in_flight: Mapping[str, int]) -> tuple[ReplicaView, ...]:
        """Return the replicas as seen by policies. `in_flight`: open calls per replica."""
        return tuple([r.view(in_flight.get(r.name, 0)) for r in self._replicas.values()])

    def able(self) -> list[Replica]:
        """Return the replicas that can receive calls: the healthy ones, otherwise those that are
        alive.
        """
        healthy = [replica for replica in self if replica.circuit.healthy]
        return healthy or [replica for replica in self if replica.circuit.alive]

    def last_resort(self, in_flight: Mapping[str, int]) -> tuple[ReplicaView, ...]:
        """Return the same as `views`, but count replicas that are alive as healthy. For a call that
        no healthy replica takes: the failures may be caused by the calls, and refusing all of them
        helps no client.
        """
        return tuple(
            ReplicaView(r.name, r.served, r.circuit.alive, in_flight.get(r.name, 0)) for r in self
        )

    def models(self) -> dict[str, Mapping[str, object]]:
        """Return every served model by id. The first replica's description takes precedence."""
        union: dict[str, Mapping[str, object]] = {}
        for replica in self:
            for name, card in replica.models.items():
                union.setdefault(name, card)
        return union

    def knows(self, model: str) -> bool:
        """Whether a replica serves `model` or may serve it because its models are not yet known."""
        known = False
        for replica in self:
            if model in replica.served or (not replica.served and replica.circuit.healthy):
                return True
            known = known or bool(replica.served)
        return not known

    def failed(self, name: str, error: ReplicaError, tenant: str = "") -> None:
        """Record that a replica failed a call of `tenant`."""
        replica = self._replicas[name]
        before = replica.circuit
        replica.circuit = before.failed(error, tenant)
        if before.healthy and not replica.circuit.healthy:
            log.warning("replica %s is out: %s (%s)", name, error, error.code)
            self.prefixes.forget(name)
        self.suspicion.set()

    def succeeded(self, name: str, tenant: str = "") -> None:
        """Record that a replica answered a call of `tenant`."""
        replica = self._replicas[name]
        replica.circuit = replica.circuit.succeeded(tenant)

    def close(self) -> None:
        """Close every connection."""
        for replica in self:
            replica.upstream.close()
