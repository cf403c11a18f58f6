"""When a replica that fails calls stops getting them. A pure state: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from weft_gateway.engine.errors import ConnectFailed, ReplicaError

# Good checks, the last of which brings a replica back that keeps failing its calls.
_MAX_WAIT: Final = 16
# Failures of one tenant's calls that count as one of several tenants'.
_ALONE: Final = 4


@dataclass(frozen=True, slots=True)
class Circuit:
    """A replica's record. healthy: may get calls. alive: its process answers, as far as is known;
    one that is alive and not healthy may get the calls that nobody else can take. dead: a check has
    found that its process has ended. failures: failed calls or checks in a row. last_error: the
    code of the latest failure, kept until the next success. trips: how often failing calls have
    taken it out since one succeeded. wait: good checks after which it is back. failing: the tenants
    of the failed calls in a row. served: two tenants at most whose calls have succeeded.

    A refused connection says that nobody is there, so one is enough. Other failures may be the
    call's own fault, so only `threshold` of them in a row take a replica out. Where they are all
    one tenant's, and others have been served, it takes _ALONE times as many: a tenant must not take
    replicas from the others. A good health check
    brings it back. Where the process answers checks but fails calls, that would be at once, and a
    replica that fails fast draws traffic: so the next failed call takes it out again, for twice as
    many checks each time, until a call succeeds.
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
        """After a call of `tenant` failed."""
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
        """After a call of `tenant` was answered. Does not bring back a replica that is out."""
        after = self
        if tenant and len(self.served) < 2 and tenant not in self.served:
            after = replace(self, served=self.served | {tenant})
        if not self.healthy or not self.failures:
            return after
        return replace(after, failures=0, last_error="", trips=0, failing=frozenset())

    def checked(
        self, good: bool, error: str = "health_check", *, sure: bool = True, gone: bool = False
    ) -> Circuit:
        """After a health check. `sure`: a bad one says that the replica is down. Otherwise it only
        was late, as a busy replica may be, and counts as a failed call does. `gone`: a bad one says
        that the process has ended."""
        if not good:
            failures = self.failures + 1
            if sure or failures >= self.threshold:
                return replace(self._gone(failures, error), dead=gone)
            return replace(self, failures=failures, last_error=error)
        # A check proves that the process answers, not that calls succeed: what failed calls said
        # stays on record until one succeeds.
        if self.healthy:
            return self
        if self.wait > 1:
            return replace(self, alive=True, dead=False, wait=self.wait - 1)
        failures = self.threshold - 1 if self.trips else 0
        return replace(self, healthy=True, alive=True, dead=False, failures=failures, wait=0)

    def _gone(self, failures: int, error: str) -> Circuit:
        """Nobody is there. Whoever comes back is another process, with a clean record."""
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
