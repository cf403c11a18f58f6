"""The calls that wait in this gateway for the KV caches of replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from weft_gateway.model import ProgramKey
from weft_gateway.policies.admission import Admission, Claim


@dataclass(slots=True, eq=False)
class Gate:
    """The admission of one replica. waiting: held calls, by id. timer: for the next due one."""

    rules: Admission
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None

    def enter(self, claim: Claim, shared: int) -> asyncio.Future[None] | None:
        """Admit a call. Returns None if it is sent now; otherwise a future that is done when it is
        sent. shared: as in `Admission.enter`.
        """
        if not self.rules.enter(claim, monotonic(), shared):
            future = self.waiting[claim.call] = asyncio.get_running_loop().create_future()
            self._set_timer()
            return future
        # A context in use is not evicted, so others may fit now.
        if self.rules.held:
            self.admit()
        return None

    def leave(self, claim: Claim, prompt: int, output: int) -> None:
        """A call has ended, sent or not. prompt, output: its tokens; 0 if unknown."""
        now = monotonic()
        self.waiting.pop(claim.call, None)
        if prompt and output:
            self.rules.answers(claim, now, output)
        self.rules.leave(claim, now, prompt + output)
        self.admit()

    def admit(self) -> None:
        """Send the held calls that fit now."""
        if not self.rules.held and self.timer is None:
            return
        for claim in self.rules.admit(monotonic()):
            future = self.waiting.pop(claim.call)
            if not future.done():
                future.set_result(None)
        self._set_timer()

    def _set_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.rules.held:
            delay_s = max(0.0, self.rules.due - monotonic())
            self.timer = asyncio.get_running_loop().call_later(delay_s, self.admit)


class Gates:
    """The gates of all replicas that have one.

    gateways: the number of gateways that send calls to the replicas. Each one uses an equal part of
    each cache. wait_s: how long a call is held at most.
    """

    def __init__(self, gateways: Callable[[], int], wait_s: float) -> None:
        self._gateways = gateways
        self._wait_s = wait_s
        self._gates: dict[str, Gate] = {}

    def of(self, replica: str, cache_tokens: int) -> Gate:
        """Return the gate of a replica with a cache of this size. If the size changes, the replica
        gets a new gate, and earlier calls leave through the old one.
        """
        tokens = cache_tokens // max(1, self._gateways())
        gate = self._gates.get(replica)
        if gate is None or gate.rules.tokens != tokens:
            gate = self._gates[replica] = Gate(Admission(tokens, self._wait_s))
        return gate

    def program_ended(self, key: ProgramKey) -> None:
        """A program has ended: its place is free."""
        for gate in self._gates.values():
            gate.rules.end(name_of(key))
            gate.admit()

    def forget(self, replica: str) -> None:
        """Drop the gate of a replica that was removed and has no calls."""
        self._gates.pop(replica, None)

    def state(self) -> dict[str, dict[str, Any]]:
        """Return the state of each gate, for administrators."""
        return {
            name: {
                "cache_tokens": gate.rules.tokens,
                "residents": gate.rules.residents,
                "kept_tokens": gate.rules.kept_tokens,
                "held": len(gate.rules.held),
            }
            for name, gate in self._gates.items()
        }

    def programs(self, replica: str) -> tuple[list[ProgramKey], dict[ProgramKey, int]]:
        """Return the residents of a replica, and its held programs with the number of those before
        them.
        """
        gate = self._gates.get(replica)
        if gate is None:
            return [], {}
        held = {_key(claim.program): claim.ahead for claim in gate.rules.held.values()}
        return [_key(name) for name in gate.rules.names], held

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        return [
            f"memory of {name}: {what}"
            for name, gate in self._gates.items()
            for what in gate.rules.violations()
        ]


def _key(name: str) -> ProgramKey:
    tenant, _, program = name.partition("/")
    return ProgramKey(tenant, program)


def name_of(key: ProgramKey) -> str:
    """Return a program's name in the gates."""
    return f"{key.tenant}/{key.program}"
