"""The compared systems and their start commands. Pure.

All run on the same release of vLLM with the same batch, memory and model, behind the same gateway.
Client, hops and program names are therefore equal, and only the columns below differ. The gateway
in front of the baselines uses round-robin, and the engine ignores its fields.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from weft_bench.cli.gpu import GpuOptions

NAME: Final = "weft-bench"


@dataclass(frozen=True, slots=True)
class System:
    """One system.

    plugin: Weft's engine plugin, or vLLM alone. policy: the engine's order, "" for its default.
    prefix_cache: vLLM's. swap: moves preempted calls' KV to host memory. tags: evict blocks by the
    type of their content. balancer: of the gateway. what: description for documents and results.
    """

    plugin: bool
    policy: str
    prefix_cache: bool
    swap: bool
    tags: bool
    balancer: str
    what: str


# In the order of Agentix 6.1 and Figure 12, whose baselines these are.
SYSTEMS: Final[Mapping[str, System]] = {
    "vllm": System(
        False, "", False, False, False, "round_robin",
        "vLLM alone, first come first served, without its prefix cache",
    ),
    "vllm-opt": System(
        False, "", True, False, False, "round_robin",
        "vLLM alone with prefix cache and chunked prefill, its defaults",
    ),
    "mlfq": System(
        True, "mlfq", True, True, False, "round_robin",
        "call-level queues on Weft's plugin, with the same swap as Weft and no tags",
    ),
    "ours": System(
        True, "", True, True, True, "locality",
        "Weft: default order, tags, swap, and a gateway that routes by prefix",
    ),
}  # fmt: skip
# The system whose capacity defines the loads.
MEASURE: Final = "vllm-opt"
OURS: Final = "ours"


def engine_command(system: System, options: GpuOptions, model: Path, port: int) -> list[str]:
    """Return the command that starts the engine."""
    module = "weft_gateway.cli" if system.plugin else "weft_engine.launch"
    line = [sys.executable, "-m", module]
    policy = system.policy or options.policy
    if system.plugin:
        line += ["replica", *(["--policy", policy] if policy else [])]
    line += ["--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    line += ["--served-model-name", NAME, "--load-format", "dummy"]
    line += ["--max-model-len", str(options.max_model_len), "--max-num-seqs", str(options.slots)]
    line += ["--max-num-batched-tokens", str(options.step_tokens)]
    if options.device == "cuda":
        line += ["--gpu-memory-utilization", str(options.memory_share)]
    if options.kv_blocks:
        line += ["--num-gpu-blocks-override", str(options.kv_blocks)]
    line.append("--enable-prefix-caching" if system.prefix_cache else "--no-enable-prefix-caching")
    return [*line, *options.more]


def engine_environment(
    system: System, options: GpuOptions, *, experiments: bool = False
) -> dict[str, str]:
    """Return the engine's variables.

    experiments: permits the orders for experiments, to measure swaps.
    """
    found = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # Enables the route that clears the prefix cache between two plays.
        "VLLM_SERVER_DEV_MODE": "1",
    }
    if system.plugin:
        settings: dict[str, Any] = {"tags": system.tags}
        if system.swap and options.swap_gib:
            settings["swap_gib"] = options.swap_gib
        orders: dict[str, Any] = {"first_quantum_s": options.first_quantum_s}
        if experiments:
            orders["experiments"] = True
        found["WEFT_ENGINE_SETTINGS"] = json.dumps(settings)
        found["WEFT_ORDER_OPTIONS"] = json.dumps(orders)
    return found


# Under load a call may wait for as long as a cell takes.
GATEWAY_ENVIRONMENT: Final = {"WEFT_FIRST_BYTE_TIMEOUT_S": "86400"}


def gateway_command(system: System, engine: str, port: int) -> list[str]:
    """Return the command that starts the gateway in front of the engine."""
    line = [sys.executable, "-m", "weft_gateway.cli", "serve", "--host", "127.0.0.1"]
    return [*line, "--port", str(port), "--balancer", system.balancer, "--replica", engine]
