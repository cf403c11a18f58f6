"""Chains of answers: which program an answer's id belongs to (row 3 of the alias table)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.model import ProgramKey

_DEFAULT_LIMIT: Final = 65_536


class ChainRoots:
    """Remembers the program of each stored answer, the most recently used ones, bounded.

    It is this process's memory: a gateway that has not seen an answer takes its id for the
    program's, which keeps the chain together from there on.
    """

    def __init__(self, limit: int = _DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._roots: OrderedDict[tuple[str, str], str] = OrderedDict()

    def record(self, key: ProgramKey, response_id: str) -> None:
        """The answer with this id belongs to this program."""
        self._roots[key.tenant, response_id] = key.program
        self._roots.move_to_end((key.tenant, response_id))
        while len(self._roots) > self._limit:
            self._roots.popitem(last=False)

    def root(self, tenant: str, link: str) -> str:
        """The program of a link of a chain; the link itself where it is not known."""
        found = self._roots.get((tenant, link))
        if found is None:
            return link
        self._roots.move_to_end((tenant, link))
        return found
