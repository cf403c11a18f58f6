"""Runs `weft run` with the arguments of this process.

Prints one JSON object: the seconds without imports, as `langgraph_play` does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

import h11  # noqa: F401  imported by httpx with its first client, as the two below
import httpcore  # noqa: F401
from anyio._backends import _asyncio  # noqa: F401
from weft_gateway import cli_runs
from weft_gateway.runs import (  # noqa: F401  imported by the command
    explaining,
    graphs,
    job,
    journal,
    local,
)


def main(arguments: Sequence[str]) -> int:
    """Run. Returns the exit status."""
    begun = time.perf_counter()
    status = cli_runs.app(list(arguments), prog_name="weft run", standalone_mode=False)
    print(json.dumps({"seconds": time.perf_counter() - begun}))
    return int(status or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
