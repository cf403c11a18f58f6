"""A gateway process with a folder of files, batches and workflows, which the test may kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

DEADLINE_S = 60
CALLS = 4


@contextlib.asynccontextmanager
async def served(
    port: int, replica: str, folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a gateway process until the context ends, which kills it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port)),
        env={
            **os.environ,
            "WEFT_REPLICAS": replica,
            "WEFT_DATA_DIR": str(folder),
            "WEFT_BATCH_CALLS": str(CALLS),
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(DEADLINE_S), httpx.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200:
                        break
                await asyncio.sleep(0.05)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
