"""The order of tests in parallel processes, and the units that one process runs as a whole."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

# All tests of one of these folders use the same engines.
STACKS = ("tests/system/real/", "tests/system/emulated/")
# The folders with the longest tests. The rest follows, so that all processes end together.
_FIRST = (*STACKS, "tests/engine/", "tests/system/")


def rank(nodeid: str) -> int:
    """Return the position of a test's folder."""
    return next((n for n, folder in enumerate(_FIRST) if nodeid.startswith(folder)), len(_FIRST))


class Scheduling(LoadScopeScheduling):
    """Gives a process whole files, and the tests on the same engines as one unit."""

    def __init__(self, config: Any, log: Any) -> None:
        # The order of collection counts, not the number of tests of a unit.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in STACKS if file.startswith(folder)), file)
