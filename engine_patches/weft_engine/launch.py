"""`weft replica`: starts vLLM's OpenAI server with Weft's plugin and the right flags.

Most of the start-up time is the import of vLLM, which stock vLLM imports in three processes (API
server, engine core, worker). On a CPU with one thread per engine, this launcher runs the worker
inside the engine core and forks the engine core from the API server, so vLLM is imported once. See
docs/internals/decisions/0002-one-import.md.

`python -m weft_engine.launch --model M --port P ...` starts vLLM without the plugin in the same
way, as a baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft_engine.model_options import model_options
from weft_engine.settings import PluginSettings
from weft_engine.version_check import check_version, installed_version

# For engines on a CPU. On GPUs, vLLM's defaults apply.
_CPU_ARGUMENTS = (
    "--dtype", "float32",
    "--enforce-eager",
    "--block-size", "32",
    "--max-num-seqs", "16",
)  # fmt: skip


def has_gpu() -> bool:
    """Whether an NVIDIA device exists, without an import of torch."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def arguments(
    model: str,
    host: str,
    port: int,
    policy: str,
    channel: str,
    extra: Sequence[str],
    gpu: bool,
    config: Mapping[str, object] | None = None,
) -> list[str]:
    """Return vLLM's command line. The user's arguments in `extra` come last and take precedence.
    config: further entries of `--additional-config`.

    Raises ValueError if an environment variable of Weft is not a JSON object or a setting is wrong.
    """
    weft = _object("WEFT_ENGINE_SETTINGS") | {"policy": policy, "channel": channel}
    if options := _object("WEFT_ORDER_OPTIONS"):
        weft["options"] = options
    settings = PluginSettings.from_config({"weft": weft})
    line = stock_arguments(model, host, port, gpu, extra)
    line += ["--scheduler-cls", "weft_engine.scheduler.WeftScheduler"]
    line += ["--middleware", "weft_engine.middleware.ReportMiddleware"]
    line += ["--additional-config", json.dumps({"weft": weft, **(config or {})})]
    if not gpu:
        line += ["--worker-cls", "weft_engine.compat_cpu.CpuWorker"]
    if settings.swap_gib:
        line += ["--kv-transfer-config", json.dumps(_swap(settings))]
    return [*line, *extra]


def stock_arguments(model: str, host: str, port: int, gpu: bool, extra: Sequence[str]) -> list[str]:
    """Return the flags that every engine gets, with or without the plugin. extra: the user's."""
    line = ["--model", model, "--host", host, "--port", str(port), *model_options(model, extra)]
    if not gpu:
        line += _CPU_ARGUMENTS
        line += ["--distributed-executor-backend", "uni"]
    # Without it, `usage` has no cached tokens, and runs and receipts know no hits.
    return [*line, "--disable-uvicorn-access-log", "--enable-prompt-tokens-details"]


def _swap(settings: PluginSettings) -> dict[str, object]:
    """Return vLLM's configuration of the KV connector."""
    return {
        "kv_connector": "SwapConnector",
        "kv_role": "kv_both",
        "kv_connector_module_path": "weft_engine.swap.connector",
        "kv_connector_extra_config": {
            "swap_gib": settings.swap_gib,
            "tenant_share": settings.swap_share,
            "load_async": settings.swap_async,
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
    """Return environment variables that vLLM needs before its import. Existing values are kept.
    plugins: names of entry points that vLLM loads, comma-separated."""
    values = {"VLLM_PLUGINS": plugins, "VLLM_NO_USAGE_STATS": "1"}
    # Without it, vLLM does not store responses, and `previous_response_id` never works.
    values["VLLM_ENABLE_RESPONSES_API_STORE"] = "1"
    if not gpu:
        # Without it, the CPU platform starts the worker in a separate process.
        values["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        values["VLLM_CPU_KVCACHE_SPACE"] = "1"
        values["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        values["OMP_NUM_THREADS"] = "1"
    return {name: os.environ.get(name, value) for name, value in values.items()}


def run(*, model: str, host: str, port: int, policy: str, extra: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status; invalid settings print a message and
    give 2."""
    gpu = has_gpu()
    os.environ.update(environment(gpu))
    try:
        check_version(installed_version())
        from weft_engine import server
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
        except ValueError as error:
            print(f"weft replica: {error}", file=sys.stderr)
            return 2
        return server.serve(line, fork=not gpu)


def stock(arguments: Sequence[str]) -> int:
    """Serve with vLLM alone until SIGTERM or SIGINT, with the plugin's flags for this machine.
    arguments: --model, --host, --port, and further arguments of vLLM. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="weft_engine.launch", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    given, extra = parser.parse_known_args(arguments)
    gpu = has_gpu()
    os.environ.update(environment(gpu, plugins=""))
    from weft_engine import server

    return server.serve(
        [*stock_arguments(given.model, given.host, given.port, gpu, extra), *extra], fork=not gpu
    )


if __name__ == "__main__":
    raise SystemExit(stock(sys.argv[1:]))
