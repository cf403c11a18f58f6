"""When a replica that fails calls stops getting them. A pure state: no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.engine.errors import ConnectFailed, ReplicaError


@dataclass(frozen=True, slots=True)
class Circuit:
    """A replica's record. healthy: may get calls. failures: failed calls or checks in a row.
    last_error: the code of the latest failure, kept until the next success.

    A refused connection says that nobody is there, so one is enough. Other failures may be the
    call's own fault, so only `threshold` of them in a row take a replica out. A good health check
    alone brings it back.
    """

    healthy: bool = False
    failures: int = 0
    last_error: str = ""
    threshold: int = 3

    def failed(self, error: ReplicaError) -> Circuit:
        """After a call failed."""
        failures = self.failures + 1
        gone = isinstance(error, ConnectFailed) or failures >= self.threshold
        return replace(
            self, healthy=self.healthy and not gone, failures=failures, last_error=error.code
        )

    def succeeded(self) -> Circuit:
        """After a call was answered. Does not bring back a replica that is out."""
        return replace(self, failures=0, last_error="") if self.healthy and self.failures else self

    def checked(self, good: bool, error: str = "health_check", *, sure: bool = True) -> Circuit:
        """After a health check. `sure`: a bad one says that the replica is down. Otherwise it only
        was late, as a busy replica may be, and counts as a failed call does."""
        if good:
            # A check proves that the process answers, not that calls succeed: what failed calls
            # said stays on record until one succeeds.
            failures = self.failures if self.healthy else 0
            return replace(self, healthy=True, failures=failures)
        failures = self.failures + 1
        gone = sure or failures >= self.threshold
        healthy = self.healthy and not gone
        return replace(self, healthy=healthy, failures=failures, last_error=error)
