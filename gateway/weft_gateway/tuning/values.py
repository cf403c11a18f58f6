"""The tuned values that all gateways share, and the lock of the gateway that tunes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from weft_gateway.errors import ApiError
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.programs.tuning import TuningStore
from weft_gateway.tuning.replay.trace import Values

log = logging.getLogger(__name__)

_EVERY_S: Final = 1.0
_ATTEMPTS: Final = 16
_NAMES: Final = frozenset(Values.__struct_fields__)


class ValuesChanging(ApiError):
    """Other gateways change the values again and again."""

    def __init__(self) -> None:
        super().__init__(409, "values_changing", "Other changes are in progress. Try again.")


@dataclass(slots=True, eq=False)
class SharedValues:
    """Keeps this gateway's values equal to those of the store. apply: uses another alpha. tunes:
    whether this gateway takes part in the choice of a leader. values: as in the store, None where
    it has none. leads: whether this gateway tunes.
    """

    store: TuningStore
    apply: Callable[[float], None]
    tunes: bool
    values: Values = field(default_factory=Values, init=False)
    leads: bool = field(default=False, init=False)
    _version: str = field(default="", init=False)

    async def run(self) -> None:
        """Apply changes by other gateways, and keep the lock, until cancelled."""
        while True:
            try:
                await self.sync()
                leads = self.tunes and await self.store.lead()
            except TableUnavailable as error:
                # Another gateway may have the lock by now.
                log.debug("the tuned values cannot be read: %s", error)
                leads = False
            if leads != self.leads:
                log.info("this gateway %s", "tunes" if leads else "does not tune any more")
            self.leads = leads
            await asyncio.sleep(_EVERY_S)

    async def sync(self) -> None:
        """Apply the latest values. Raises TableUnavailable."""
        version, found = await self.store.read()
        if version != self._version:
            known = {name: value for name, value in found.items() if name in _NAMES}
            self._version, self.values = version, Values(**known)
            if self.values.alpha is not None and 0 <= self.values.alpha <= 1:
                self.apply(self.values.alpha)

    async def change(self, changes: Mapping[str, float]) -> None:
        """Change some values, for all gateways. Raises TableUnavailable, or ValuesChanging."""
        for _ in range(_ATTEMPTS):
            await self.sync()
            if await self.store.write({**self.values.known(), **changes}, self._version):
                await self.sync()
                return
        raise ValuesChanging
