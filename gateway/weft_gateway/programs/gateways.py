"""How many gateways send calls to the same replicas: those that share a process table."""

from __future__ import annotations


class Gateways:
    """The gateways of one process table. This one is alone: its table is in memory. count: the
    gateways that are present, at least 1.
    """

    def __init__(self) -> None:
        self.count = 1

    async def refresh(self) -> None:
        """Renew this gateway's presence, and count again. Raises TableUnavailable."""

    async def leave(self) -> None:
        """Stop counting as present."""
