"""`weft replica`: vLLM's own OpenAI server with Weft's plugin, started with the right flags.

Where the start goes: importing vLLM costs most of it, and stock vLLM imports it in three
processes (API server, engine core, worker). On a CPU with one thread an engine this launcher runs
the worker inside the engine core, and the engine core is forked from the API server, so that vLLM
is imported once. See docs/decisions/0002-one-import.md.

`python -m weft_engine.launch --model M --port P ...` starts vLLM alone the same way: what the
plugin is compared with.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from weft_engine.version_check import check_version, installed_version

# One sequence of the demo model at most; engines of users take vLLM's own default.
_CPU_ARGUMENTS = (
    "--dtype", "float32",
    "--enforce-eager",
    "--block-size", "32",
    "--max-num-seqs", "16",
)  # fmt: skip


def has_gpu() -> bool:
    """Whether an NVIDIA device is there, without importing torch."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def arguments(
    model: str, host: str, port: int, policy: str, channel: str, extra: Sequence[str], gpu: bool
) -> list[str]:
    """vLLM's command line. What the user gives in `extra` comes last and wins.

    Raises ValueError for variables of ours that are no JSON objects.
    """
    weft = _object("WEFT_ENGINE_SETTINGS") | {"policy": policy, "channel": channel}
    if options := _object("WEFT_ORDER_OPTIONS"):
        weft["options"] = options
    line = _stock(model, host, port, gpu)
    line += ["--scheduler-cls", "weft_engine.scheduler.WeftScheduler"]
    line += ["--middleware", "weft_engine.middleware.ReportMiddleware"]
    line += ["--additional-config", json.dumps({"weft": weft})]
    if weft.get("swap_gib"):
        line += ["--kv-transfer-config", json.dumps(_swap(weft))]
    return [*line, *extra]


def _stock(model: str, host: str, port: int, gpu: bool) -> list[str]:
    """What every engine is started with, also one without the plugin."""
    line = ["--model", model, "--host", host, "--port", str(port)]
    if not gpu:
        line += _CPU_ARGUMENTS
        line += ["--distributed-executor-backend", "uni"]
    return [*line, "--disable-uvicorn-access-log"]


def _swap(weft: dict[str, object]) -> dict[str, object]:
    """vLLM's configuration of the KV connector."""
    return {
        "kv_connector": "SwapConnector",
        "kv_role": "kv_both",
        "kv_connector_module_path": "weft_engine.swap.connector",
        "kv_connector_extra_config": {
            "swap_gib": weft["swap_gib"],
            "tenant_share": weft.get("swap_share", 1.0),
            "load_async": weft.get("swap_async", False),
        },
    }


def _object(variable: str) -> dict[str, object]:
    text = os.environ.get(variable, "")
    try:
        value = json.loads(text) if text else {}
    except ValueError as error:
        raise ValueError(f"{variable} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{variable} must be a JSON object, got {text}")
    return value


def environment(gpu: bool, plugins: str = "weft") -> dict[str, str]:
    """Variables that vLLM needs before it is imported; those already set are kept. plugins: names
    of entry points that it loads, comma-separated."""
    values = {"VLLM_PLUGINS": plugins, "VLLM_NO_USAGE_STATS": "1"}
    # Without it, vLLM stores no answers, and `previous_response_id` never works.
    values["VLLM_ENABLE_RESPONSES_API_STORE"] = "1"
    if not gpu:
        # Without it the CPU platform insists on a worker process of its own.
        values["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        values["VLLM_CPU_KVCACHE_SPACE"] = "1"
        values["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        values["OMP_NUM_THREADS"] = "1"
    return {name: os.environ.get(name, value) for name, value in values.items()}


def run(*, model: str, host: str, port: int, policy: str, extra: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status; bad settings give 2 and a message."""
    gpu = has_gpu()
    os.environ.update(environment(gpu))
    try:
        check_version(installed_version())
        from weft_engine import server
        from weft_engine.settings import PluginSettings
    except ImportError as error:
        print(f"weft replica: the engine cannot be imported ({error})", file=sys.stderr)
        return 2
    except RuntimeError as error:
        print(f"weft replica: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        channel = f"ipc://{folder}/engine"
        try:
            line = arguments(model, host, port, policy, channel, extra, gpu)
            config = json.loads(line[line.index("--additional-config") + 1])
            PluginSettings.from_config(config)
        except ValueError as error:
            print(f"weft replica: {error}", file=sys.stderr)
            return 2
        return server.serve(line, fork=not gpu)


def stock(arguments: Sequence[str]) -> int:
    """Serve with vLLM alone until SIGTERM or SIGINT, with the flags that the plugin's engines have
    for this machine. arguments: --model, --host, --port, and what vLLM takes besides. Returns the
    exit status."""
    parser = argparse.ArgumentParser(prog="weft_engine.launch", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    given, extra = parser.parse_known_args(arguments)
    gpu = has_gpu()
    os.environ.update(environment(gpu, plugins=""))
    from weft_engine import server

    return server.serve([*_stock(given.model, given.host, given.port, gpu), *extra], fork=not gpu)


if __name__ == "__main__":
    raise SystemExit(stock(sys.argv[1:]))
