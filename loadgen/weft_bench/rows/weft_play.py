"""Runs `weft run` with the arguments of this process.

Prints one JSON object: the seconds without imports, as `langgraph_play` does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence

from weft_run import cli as cli_runs
from weft_run.io import (  # noqa: F401  imported by the command
    explaining,
    graphs,
    job,
    journal,
    local,
)
from weft_run.io.clients import new_client


def main(arguments: Sequence[str]) -> int:
    """Run. Returns the exit status."""
    # httpx imports its parts with the first client. LangGraph's play has made its clients, too.
    asyncio.run(new_client(None, tls=False).aclose())
    begun = time.perf_counter()
    status = cli_runs.app(list(arguments), prog_name="weft run", standalone_mode=False)
    print(json.dumps({"seconds": time.perf_counter() - begun}))
    return int(status or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
