"""A simulated replica in a separate process, started like a user starts it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft_bench.stack.processes import free_port, running


@contextmanager
def simulated_replica(folder: Path, *options: str) -> Iterator[str]:
    """Run a replica and yield its base URL. Its log is `FOLDER/PORT.log`."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "weft_gateway.cli",
        "bench",
        "replica",
        "--port",
        str(port),
    ]
    url = f"http://127.0.0.1:{port}"
    with running([*command, *options], f"{url}/health", folder / f"{port}.log"):
        yield url
