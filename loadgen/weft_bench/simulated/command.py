"""`weft bench replica`: serve a simulated replica until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import uvloop

from weft_bench.cli.replica import SimulatedOptions
from weft_bench.costs.engines import shapes
from weft_bench.costs.presets import EngineShape
from weft_bench.simulated.admin import Admin
from weft_bench.simulated.batcher import Batcher
from weft_bench.simulated.engine import Engine
from weft_bench.simulated.server import Connection
from weft_bench.simulated.service import About, Service


def run(options: SimulatedOptions) -> int:
    """Serve. Returns the exit status: 2 for invalid settings, with a message."""
    try:
        if not options.speed_up > 0:
            raise ValueError(f"--speed-up must be above 0, got {options.speed_up}")
        (shape,) = shapes(options.preset, 1, options.slots, options.kv_blocks)
        engine = build(options.scheduler, shape, options.policy, _order_options())
    except ValueError as error:
        print(f"weft bench replica: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"weft bench replica: vLLM is not installed here ({error})", file=sys.stderr)
        return 2
    about = About(
        model=options.model,
        answer_tokens=options.answer_tokens,
        context=shape.context,
        preset=options.preset,
        scheduler=options.scheduler,
        speed_up=options.speed_up,
        secret=os.environ.get("WEFT_ENGINE_SECRET", ""),
    )
    try:
        uvloop.run(_serve(about, engine, options.host, options.port))
    except OSError as error:
        print(f"weft bench replica: {error}", file=sys.stderr)
        return 1
    return 0


def build(scheduler: str, shape: EngineShape, policy: str, options: Mapping[str, Any]) -> Engine:
    """Return the engine: "plain" or "vllm".

    Raises ValueError for invalid settings and ImportError if vLLM is not installed.
    """
    if scheduler == "plain":
        return Batcher(shape, policy, options)
    if scheduler == "vllm":
        # The import takes seconds.
        from weft_bench.simulated.real import RealScheduler

        return RealScheduler(shape, policy, options)
    raise ValueError(f"--scheduler must be plain or vllm, got {scheduler!r}")


def _order_options() -> Mapping[str, Any]:
    """Return the options of the orders. A real engine reads the same variable."""
    text = os.environ.get("WEFT_ORDER_OPTIONS", "")
    try:
        found = json.loads(text) if text else {}
    except ValueError as error:
        raise ValueError(f"WEFT_ORDER_OPTIONS is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"WEFT_ORDER_OPTIONS must be a JSON object, got {text}")
    return found


async def _serve(about: About, engine: Engine, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    service = Service(about, engine)
    admin = Admin(service)
    server = await loop.create_server(lambda: Connection(service, admin), host, port, backlog=1024)
    bound = server.sockets[0].getsockname()
    print(
        f"SIMULATED replica on http://{bound[0]}:{bound[1]}: no model, {about.preset} at "
        f"{about.speed_up:g} times its speed, {about.scheduler} scheduler. "
        "Its figures do not describe a real engine.",
        flush=True,
    )
    await stop.wait()
    server.close()
    if service.pace.behind_s:
        print(f"SIMULATED replica: {service.pace.behind_s:.3f} s behind its model", flush=True)
