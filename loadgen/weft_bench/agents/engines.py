"""Engines in real time, and the gateway that starts with them."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from weft_engine.emulated.presets import EngineShape

from weft_bench.agents import shapes as models
from weft_bench.stack.local import StackError, local_stack

STOCK: Final = "stock"
WEFT: Final = "weft"
# Engines report the cached tokens of a call, and send the first token of a stream at once and the
# others in groups, which costs the machine less.
_ARGUMENTS: Final = ("--enable-prompt-tokens-details", "--stream-interval", "32")
_PATIENCE_S: Final = 60.0
# Longest call on a GPU, tokens.
_GPU_CONTEXT: Final = 131_072
_GPU_MODEL: Final = "weft-bench"
_CACHE: Final = ("block_size", "num_gpu_blocks")


@dataclass(frozen=True, slots=True)
class Engines:
    """Running engines. gateway: base URL of the gateway before them. model: the name that they
    serve. context: longest call, tokens. kv_tokens: of each cache. emulated: whether they are.
    """

    urls: tuple[str, ...]
    gateway: str
    model: str
    context: int
    kv_tokens: int
    emulated: bool

    def device_seconds(self) -> tuple[float, float]:
        """Return the engine seconds in which emulated devices worked and were late; 0 for real
        engines.
        """
        busy = late = 0.0
        for url in self.urls if self.emulated else ():
            text = _metrics(url)
            busy += _total(text, "weft_emulated_busy_seconds_total")
            late += _total(text, "weft_emulated_late_seconds_total")
        return busy, late


@dataclass(frozen=True, slots=True)
class Wanted:
    """Engines to start. shape: of emulated engines. model: name of a shape of `models` on a GPU; ""
    for vLLM with the demo model on a CPU. slots, kv_blocks: 0 for the engine's own. host_gib: host
    memory for KV of each engine. policy: the order. scheduler: STOCK for vLLM's own. more: further
    arguments of vLLM.
    """

    replicas: int = 1
    shape: EngineShape | None = None
    model: str = ""
    dilate: float = 1.0
    slots: int = 0
    kv_blocks: int = 0
    host_gib: float = 0.0
    policy: str = "resident"
    scheduler: str = WEFT
    more: Sequence[str] = ()


@contextmanager
def started(wanted: Wanted) -> Iterator[Engines]:
    """Start engines and a gateway like `weft up`, and end them after the block. Raises StackError
    if they do not start.
    """
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        line, variables = command_line(wanted, work)
        base = stack.enter_context(local_stack(line, variables))
        card = _ask(f"{base}/v1/models")["data"][0]
        urls = tuple(replica["url"] for replica in _ask(f"{base}/health")["replicas"])
        tokens = _cache(urls[0])
        context = min(int(card["max_model_len"]), tokens)
        yield Engines(urls, base, str(card["id"]), context, tokens, wanted.shape is not None)


def command_line(wanted: Wanted, work: Path) -> tuple[list[str], dict[str, str]]:
    """Return the options of `weft up` and its variables. work: a folder for files."""
    line = ["--replicas", str(wanted.replicas), "--policy", wanted.policy]
    variables: dict[str, str] = {}
    extra: list[str] = []
    if wanted.shape is not None:
        file = work / "engine.json"
        file.write_text(json.dumps({"engine": asdict(wanted.shape)}))
        line += ["--emulated", "--preset", str(file), "--dilate", f"{wanted.dilate:g}"]
        line += ["--scheduler", wanted.scheduler]
    elif wanted.scheduler == STOCK:
        # The plugin with vLLM's own order and eviction.
        line[-1] = "fcfs"
        variables["WEFT_ENGINE_SETTINGS"] = '{"tags": false}'
    if wanted.model:
        models.write(work / "model", wanted.model, _GPU_CONTEXT)
        line += ["--model", str(work / "model")]
        extra += ["--load-format", "dummy", "--served-model-name", _GPU_MODEL]
        extra += ["--max-model-len", str(_GPU_CONTEXT)]
    if wanted.slots:
        extra += ["--max-num-seqs", str(wanted.slots)]
    if wanted.kv_blocks:
        extra += ["--num-gpu-blocks-override", str(wanted.kv_blocks)]
    if wanted.host_gib:
        extra += ["--kv-offloading-size", f"{wanted.host_gib:g}"]
    return [*line, "--", *_ARGUMENTS, *extra, *wanted.more], variables


def _cache(url: str) -> int:
    """Return the tokens of an engine's KV cache. Raises StackError."""
    line = _metrics(url).partition("\nvllm:cache_config_info{")[2].partition("\n")[0]
    found = [re.search(rf'\b{name}="(\d+)"', line) for name in _CACHE]
    if None in found:
        raise StackError(f"the /metrics of {url} do not say how many KV blocks it has")
    size, blocks = (int(one[1]) for one in found if one)
    return size * blocks


def _metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=_PATIENCE_S, trust_env=False).text


def _total(metrics: str, name: str) -> float:
    return float(metrics.partition(f"\n{name} ")[2].partition("\n")[0] or 0.0)


def _ask(url: str) -> Any:
    return httpx.get(url, timeout=_PATIENCE_S, trust_env=False).raise_for_status().json()
