"""The order of tests in parallel processes, and the units that one process runs as a whole."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

# All tests of this folder use one stack of real engines.
STACK = "tests/system/real/"
# The folders with the longest tests. The rest follows, so that all processes end together.
_FIRST = (STACK, "tests/engine/", "tests/system/")


def rank(nodeid: str) -> int:
    """Return the position of a test's folder."""
    return next((n for n, folder in enumerate(_FIRST) if nodeid.startswith(folder)), len(_FIRST))


class Scheduling(LoadScopeScheduling):
    """Gives a process whole files, and the tests on the real stack as one unit."""

    def __init__(self, config: Any, log: Any) -> None:
        # The order of collection counts, not the number of tests of a unit.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return STACK if nodeid.startswith(STACK) else nodeid.partition("::")[0]
