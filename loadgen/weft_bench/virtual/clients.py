"""The client of a simulated program: its tenant, and the facts that it states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from weft_engine.wire import CallContext

ONLY_TENANT: Final = "tenant"


@dataclass(frozen=True, slots=True)
class Client:
    """The client of a program."""

    tenant: str = ONLY_TENANT


class Shared(StrEnum):
    """How engines treat tenants."""

    # They do not know them.
    UNKNOWN = "unknown"
    # By shares of time, slots and memory (see `weft_engine.tenant_shares`).
    TENANTS = "tenants"
    # A tenant takes the place of a program, as a client of VTC (Sheng et al., OSDI 2024).
    CLIENTS = "clients"


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of all programs. known: by program; other programs have the only tenant."""

    known: Mapping[str, Client] = field(default_factory=dict)
    shared: Shared = Shared.UNKNOWN

    def of(self, program: str) -> Client:
        """Return the client of a program."""
        return self.known.get(program, _OTHERS)

    def context(self, context: CallContext) -> CallContext:
        """Return what the engine is sent about a call."""
        client = self.known.get(context.program)
        if client is None:
            return context
        if self.shared is Shared.TENANTS:
            return replace(context, tenant=client.tenant)
        if self.shared is Shared.CLIENTS:
            return replace(context, program=client.tenant)
        return context


_OTHERS: Final = Client()
EVERYONE: Final = Clients()
