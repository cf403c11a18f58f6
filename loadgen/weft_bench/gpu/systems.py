"""The systems that are compared, and how each is started. Pure.

All of them run on the same release of vLLM with the same batch, memory and model, and are called
through the same gateway: so the client, the hops and the names of programs are alike, and what
differs is in the table below. The gateway in front of the baselines takes replicas in turn and
tells the engine nothing that a stock one would read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NAME: Final = "weft-bench"


@dataclass(frozen=True, slots=True)
class System:
    """One row. plugin: Weft's engine plugin, or vLLM alone. policy: the engine's order, "" for its
    default. prefix_cache: of vLLM. swap: displaced calls' KV goes to host memory. tags: blocks go
    by what they hold. balancer: of the gateway. what: in words, for documents and results."""

    plugin: bool
    policy: str
    prefix_cache: bool
    swap: bool
    tags: bool
    balancer: str
    what: str


# In the order of Agentix 6.1, whose baselines these are (and Figure 12).
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
        "call-level queues on our plugin, with the same swap as ours and no tags",
    ),
    "ours": System(
        True, "", True, True, True, "locality",
        "Weft: its default order, tags, swap, and the gateway that knows where prefixes are",
    ),
}  # fmt: skip
# The order of playing: a run that ends early has the most telling pair.
PLAYED: Final = ("vllm-opt", "ours", "mlfq", "vllm")
# Whose capacity the loads are shares of.
MEASURE: Final = "vllm-opt"
OURS: Final = "ours"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What all engines have alike. context: longest call, tokens. slots: calls at once.
    step_tokens: of a batch. kv_blocks: 0 for what the memory holds. memory_share: of a GPU's
    memory. swap_gib: host memory for displaced calls' KV. policy: order of `ours`, "" for the
    default. more: given to every engine as it is, at the end."""

    context: int = 32_768
    slots: int = 256
    step_tokens: int = 8192
    kv_blocks: int = 0
    memory_share: float = 0.9
    swap_gib: float = 16.0
    first_quantum_s: float = 0.5
    policy: str = ""
    more: Sequence[str] = ()


def engine_command(
    system: System, options: EngineOptions, model: Path, port: int, device: str
) -> list[str]:
    """What starts the engine."""
    module = "weft_gateway.cli" if system.plugin else "weft_engine.launch"
    line = [sys.executable, "-m", module]
    policy = system.policy or options.policy
    if system.plugin:
        line += ["replica", *(["--policy", policy] if policy else [])]
    line += ["--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    line += ["--served-model-name", NAME, "--load-format", "dummy"]
    line += ["--max-model-len", str(options.context), "--max-num-seqs", str(options.slots)]
    line += ["--max-num-batched-tokens", str(options.step_tokens)]
    if device == "cuda":
        line += ["--gpu-memory-utilization", str(options.memory_share)]
    if options.kv_blocks:
        line += ["--num-gpu-blocks-override", str(options.kv_blocks)]
    line.append("--enable-prefix-caching" if system.prefix_cache else "--no-enable-prefix-caching")
    return [*line, *options.more]


def engine_environment(
    system: System, options: EngineOptions, *, experiments: bool = False
) -> dict[str, str]:
    """Variables of the engine. experiments: it may be told the future, for measuring swaps."""
    found = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # Its route that empties the prefix cache is needed between two plays.
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
    """What starts the gateway in front of it."""
    line = [sys.executable, "-m", "weft_gateway.cli", "serve", "--host", "127.0.0.1"]
    return [*line, "--port", str(port), "--balancer", system.balancer, "--replica", engine]
