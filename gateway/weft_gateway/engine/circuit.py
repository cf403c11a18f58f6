"""Decides when a failing replica stops receiving calls. Pure state: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from weft_gateway.engine.errors import ConnectFailed, ReplicaError

# Maximum number of good checks before a replica with failing calls returns.
_MAX_WAIT: Final = 16
# Threshold multiplier when all failed calls belong to one tenant.
_ALONE: Final = 4


@dataclass(frozen=True, slots=True)
class Circuit:
    """The circuit breaker state of a replica.

    healthy: the replica may receive calls. alive: its process answers, as far as known; a replica
    that is alive but not healthy may receive calls that no healthy replica can take. dead: a check
    found that the process has ended. failures: consecutive failed calls or checks. last_error: code
    of the latest one of these, "" without one. trips: how often failed calls have opened
    the circuit since a call succeeded. wait: good checks until the replica returns. failing:
    tenants of the consecutive failed calls. served: at most two tenants whose calls have succeeded.

    A refused connection proves that no process listens, so one is enough to open the circuit. Other
    failures may be caused by the call, so `threshold` consecutive failures are required. If all
    belong to one tenant and other tenants have been served, _ALONE times as many are required: a
    tenant must not remove replicas from other tenants.

    A good health check closes the circuit. If the process answers checks but fails calls, it would
    return at once, and a replica that fails fast attracts traffic. So the next failed call opens
    the circuit again, each time for twice as many checks, until a call succeeds.
    """

    healthy: bool = False
    failures: int = 0
    last_error: str = ""
    threshold: int = 3
    alive: bool = False
    trips: int = 0
    wait: int = 0
    dead: bool = False
    failing: frozenset[str] = frozenset()
    served: frozenset[str] = frozenset()

    def failed(self, error: ReplicaError, tenant: str = "") -> Circuit:
        """Return the state after a failed call of `tenant`."""
        failures = self.failures + 1
        if isinstance(error, ConnectFailed):
            return self._gone(failures, error.code)
        failing = self.failing | {tenant}
        after = replace(self, failures=failures, last_error=error.code, failing=failing)
        alone = len(failing) == 1 and not self.served <= failing
        if not self.healthy or failures < self.threshold * (_ALONE if alone else 1):
            return after
        wait = min(2**self.trips, _MAX_WAIT)
        return replace(after, healthy=False, trips=self.trips + 1, wait=wait)

    def succeeded(self, tenant: str = "") -> Circuit:
        """Return the state after a successful call of `tenant`. Does not close an open circuit."""
        after = self
        if tenant and len(self.served) < 2 and tenant not in self.served:
            after = replace(self, served=self.served | {tenant})
        if not self.healthy or not self.failures:
            return after
        return replace(after, failures=0, last_error="", trips=0, failing=frozenset())

    def checked(
        self, good: bool, error: str = "health_check", *, sure: bool = True, gone: bool = False
    ) -> Circuit:
        """Return the state after a health check. `sure`: a bad check proves that the replica is
        down; otherwise it was only late, as a busy replica may be, and counts as one failed call.
        `gone`: a bad check proves that the process has ended.
        """
        if not good:
            failures = self.failures + 1
            if sure or failures >= self.threshold:
                return replace(self._gone(failures, error), dead=gone)
            return replace(self, failures=failures, last_error=error)
        # A check proves that the process answers, not that calls succeed: the record of failed
        # calls stays until one succeeds. That of late checks ends.
        if self.healthy:
            late = self.failures and not self.failing
            return replace(self, failures=0, last_error="") if late else self
        if self.wait > 1:
            return replace(self, alive=True, dead=False, wait=self.wait - 1)
        after = replace(self, healthy=True, alive=True, dead=False, wait=0)
        if self.trips:
            return replace(after, failures=self.threshold - 1)
        return replace(after, failures=0, last_error="", failing=frozenset())

    def _gone(self, failures: int, error: str) -> Circuit:
        """The process has ended. The next one at this address starts with a clean record."""
        return replace(
            self,
            healthy=False,
            alive=False,
            failures=failures,
            last_error=error,
            trips=0,
            wait=0,
            failing=frozenset(),
            served=frozenset(),
        )
