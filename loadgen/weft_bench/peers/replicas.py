"""Replicas behind all fronts: started once, emptied before every play, queried after it."""

from __future__ import annotations

import re
import secrets
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from weft_engine.emulated.engines import shapes
from weft_engine.emulated.presets import EngineShape

from weft_bench.cli.peers import EMULATED, GPU, PeersOptions
from weft_bench.peers import call_log
from weft_bench.peers import shapes as models
from weft_bench.peers.fronts import STOCK, WEFT, Place
from weft_bench.peers.outcome import Answer
from weft_bench.stack.local import StackError, local_stack

# Arguments of engines that the bench queries.
ARGUMENTS: Final = (
    "--enable-prompt-tokens-details",
    "--middleware", f"{call_log.__name__}.{call_log.CallLog.__name__}",
)  # fmt: skip
# vLLM without the plugin has an endpoint that empties its cache in this mode only.
STOCK_VARIABLES: Final = {"VLLM_SERVER_DEV_MODE": "1"}
_PATIENCE_S: Final = 60.0
# vLLM on a CPU, as `weft replica` starts it.
_REAL_BLOCK_TOKENS: Final = 32
# Longest call on a GPU, tokens.
_GPU_CONTEXT: Final = 32_768
_GPU_MODEL: Final = "weft-bench"
_CACHE: Final = ("block_size", "num_gpu_blocks")


@dataclass(frozen=True, slots=True)
class Replicas:
    """Engines that a front can use.

    place: properties for the fronts. scheduler: STOCK for vLLM without the plugin. context: longest
    call, tokens. shapes: of emulated engines, one for each, none for real ones. gateway: base URL
    of the gateway that was started with them.
    """

    urls: tuple[str, ...]
    place: Place
    scheduler: str
    context: int
    block_tokens: int
    shapes: tuple[EngineShape, ...] = ()
    gateway: str = ""

    def reset(self, order: str) -> None:
        """Prepare for the next front: set the order, empty the caches and the call logs.

        Raises httpx.HTTPError or StackError if an engine does not obey.
        """
        for url in self.urls:
            if self.scheduler == STOCK:
                _empty_cache(url)
            else:
                body = {"policy": order, "reset_cache": True}
                _ask("POST", f"{url}/weft/policy", body, {"x-weft-secret": self.place.secret})
            _ask("DELETE", url + call_log.PATH)

    def answers(self) -> dict[str, Answer]:
        """Return the answers since the last reset, by id."""
        return {
            call.pop("id"): Answer(number, **call)
            for number, url in enumerate(self.urls)
            for call in _ask("GET", url + call_log.PATH)["calls"]
        }

    def device_seconds(self) -> tuple[float, float]:
        """Return the engine seconds in which emulated devices worked and were late; 0 for real
        engines.
        """
        busy = late = 0.0
        for url in self.urls if self.shapes else ():
            answer = httpx.get(f"{url}/metrics", timeout=_PATIENCE_S, trust_env=False)
            busy += _total(answer.text, "weft_emulated_busy_seconds_total")
            late += _total(answer.text, "weft_emulated_late_seconds_total")
        return busy, late


@contextmanager
def replicas(
    options: PeersOptions, schedulers: Collection[str]
) -> Iterator[Mapping[str, Replicas]]:
    """Start engines for each of these schedulers like `weft up`, and end them after the block.

    All real engines have the plugin. Yields the engines by scheduler. Raises StackError if they do
    not start.
    """
    secret = secrets.token_hex(16)
    emulated = options.engines == EMULATED
    with ExitStack() as stack:
        found = {}
        folder = ""
        if options.engines == GPU:
            model = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
            models.write(model, options.shape, _GPU_CONTEXT)
            folder = str(model)
        for scheduler in schedulers if emulated else (WEFT,):
            variables = {"WEFT_ENGINE_SECRET": secret}
            if scheduler == STOCK:
                variables |= STOCK_VARIABLES
            line = command_line(options, scheduler, folder)
            base = stack.enter_context(local_stack(line, variables))
            found[scheduler] = _at(base, options, scheduler, secret)
        yield found if emulated else dict.fromkeys(schedulers, found[WEFT])


def command_line(options: PeersOptions, scheduler: str, model: str = "") -> list[str]:
    """Return the options of `weft up`. model: folder of the model on a GPU."""
    line = ["--replicas", str(options.replicas)]
    if options.engines == EMULATED:
        line += ["--emulated", "--preset", options.preset, "--dilate", f"{options.dilate:g}"]
        line += ["--scheduler", scheduler]
    if model:
        line += ["--model", model]
    line += ["--", "--max-num-seqs", str(options.slots)]
    if model:
        line += ["--load-format", "dummy", "--served-model-name", _GPU_MODEL]
        line += ["--max-model-len", str(_GPU_CONTEXT)]
    if options.host_kv_gib:
        line += ["--kv-offloading-size", f"{options.host_kv_gib:g}"]
    if options.kv_blocks:
        line += ["--num-gpu-blocks-override", str(options.kv_blocks)]
    return [*line, *ARGUMENTS, *options.more]


def _at(base: str, options: PeersOptions, scheduler: str, secret: str) -> Replicas:
    """Return the engines of the stack at `base`."""
    found: tuple[EngineShape, ...] = ()
    card = _ask("GET", f"{base}/v1/models")["data"][0]
    urls = tuple(replica["url"] for replica in _ask("GET", f"{base}/health")["replicas"])
    block_tokens, blocks = _REAL_BLOCK_TOKENS, options.kv_blocks
    if options.engines == EMULATED:
        found = tuple(shapes(options.preset, options.replicas, options.slots, options.kv_blocks))
        block_tokens = found[0].block_tokens
    elif options.engines == GPU:
        block_tokens, blocks = _cache(urls[0])
    tokens = blocks * block_tokens
    # vllm-router knows one cost model: that of the first engine.
    cost = found[0].cost if found else None
    place = Place(str(card["id"]), tokens, options.dilate, cost, secret)
    context = min(int(card["max_model_len"]), tokens)
    return Replicas(urls, place, scheduler, context, block_tokens, found, base)


def _cache(url: str) -> tuple[int, int]:
    """Return the tokens of a KV block of an engine, and its blocks. Raises StackError."""
    answer = httpx.get(f"{url}/metrics", timeout=_PATIENCE_S, trust_env=False)
    line = answer.text.partition("\nvllm:cache_config_info{")[2].partition("\n")[0]
    found = [re.search(rf'\b{name}="(\d+)"', line) for name in _CACHE]
    if None in found:
        raise StackError(f"the /metrics of {url} do not say how many KV blocks it has")
    size, blocks = (int(one[1]) for one in found if one)
    return size, blocks


def _empty_cache(url: str) -> None:
    """Empty the cache and the host memory of vLLM without the plugin, which refuses while a call
    holds blocks."""
    deadline = time.monotonic() + _PATIENCE_S
    while not _ask("POST", f"{url}/reset_prefix_cache?reset_external=true")["success"]:
        if time.monotonic() > deadline:
            raise StackError(f"{url} does not empty its cache")
        time.sleep(0.1)


def _total(metrics: str, name: str) -> float:
    return float(metrics.partition(f"\n{name} ")[2].partition("\n")[0])


def _ask(method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
    answer = httpx.request(
        method, url, json=body, headers=headers, timeout=_PATIENCE_S, trust_env=False
    )
    return answer.raise_for_status().json()
