"""What an engine says about its queues and its cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft_gateway.model.record import record


@record
class EngineLoad:
    """The load of one replica. running, waiting: requests. usage: the part of the KV cache in use.
    blocks, block_tokens: its cache; 0 if unknown. generated: output tokens since its start.
    residents, active: programs with a place and with a running call, by the names that engines
    know. ahead: programs that wait for memory, with the number of those before them. named: the
    engine names programs, which only Weft's plugin does.
    """

    running: int = 0
    waiting: int = 0
    usage: float = 0.0
    blocks: int = 0
    block_tokens: int = 0
    generated: float = 0.0
    residents: frozenset[str] = frozenset()
    active: frozenset[str] = frozenset()
    ahead: Mapping[str, int] = field(default_factory=dict)
    named: bool = False

    @property
    def tokens(self) -> int:
        """The size of the cache."""
        return self.blocks * self.block_tokens
