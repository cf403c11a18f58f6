"""Runs vLLM's API server with a command line. It can fork the engine core from this process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

# Exit status for a supervisor: vLLM exits with 0 when its engine core dies.
CORE_DIED: Final = 1


def _unchanged(engine: Any) -> Any:
    return engine


def serve(
    line: Sequence[str],
    fork: bool,
    adjust: Callable[[Any], object] | None = None,
    engine: Callable[[Any], Any] = _unchanged,
) -> int:
    """Parse vLLM's arguments and serve until a signal. Returns the exit status: CORE_DIED if the
    engine core ended unexpectedly.

    fork: start the engine core by fork instead of spawn, which saves a second import of vLLM. Safe
    only on CPU, where the API server has started no OpenMP threads and no CUDA context. adjust:
    called with vLLM's configuration before the engine starts. engine: returns a subclass of vLLM's
    engine class.
    """
    import uvloop

    from weft_engine import compat_serve as vllm

    vllm.cli_env_setup()
    parser = vllm.make_arg_parser(vllm.FlexibleArgumentParser(prog="weft replica"))
    args = parser.parse_args(list(line))
    vllm.validate_parsed_serve_args(args)
    if (args.api_server_count or 1) > 1:
        print(
            f"weft replica: --api-server-count {args.api_server_count}: a replica has one API "
            "server; start several replicas",
            file=sys.stderr,
        )
        return 2
    try:
        return CORE_DIED if uvloop.run(_serve(args, fork, adjust, engine)) else 0
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


def watched(engine: Any) -> Any:
    """Return a subclass of an engine class. Its `died` says, after a shutdown, whether the engine
    had died before. Without it, the two cases look the same afterwards."""

    class Watched(engine):  # type: ignore[misc]
        died: bool | None = None

        def shutdown(self, *args: Any, **kwargs: Any) -> None:
            if self.died is None:
                self.died = bool(self.errored)
            super().shutdown(*args, **kwargs)

    return Watched


async def _serve(
    args: Any, fork: bool, adjust: Callable[[Any], object] | None, subclass: Callable[[Any], Any]
) -> bool:
    """Serve. Returns whether the engine core has died."""
    from weft_engine import compat_serve as vllm

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    # uvicorn handles the signals once it runs.
    signal.signal(signal.SIGTERM, interrupted)
    address, sock = vllm.setup_server(args, reuse_port=False)
    engine_args = vllm.AsyncEngineArgs.from_cli_args(args)
    config = engine_args.create_engine_config(usage_context=vllm.UsageContext.OPENAI_API_SERVER)
    if adjust is not None:
        adjust(config)
    if fork:
        # The CPU platform sets spawn to separate OpenMP settings, which is unnecessary with one
        # thread per engine.
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
    engine = watched(subclass(vllm.AsyncLLM)).from_vllm_config(
        vllm_config=config,
        usage_context=vllm.UsageContext.OPENAI_API_SERVER,
        enable_log_requests=engine_args.enable_log_requests,
        disable_log_stats=engine_args.disable_log_stats,
    )
    try:
        shutdown = await vllm.build_and_serve(engine, address, sock, args)
        await shutdown
    finally:
        engine.shutdown(timeout=config.shutdown_timeout)
        sock.close()
    return bool(engine.died)
