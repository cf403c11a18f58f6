"""Replicas behind all fronts: started once, emptied before every play, queried after it."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from weft_bench.cli.peers import SIMULATED
from weft_bench.costs.engines import shapes
from weft_bench.costs.presets import EngineShape
from weft_bench.peers import call_log
from weft_bench.peers.fronts import Place
from weft_bench.peers.outcome import Answer
from weft_bench.stack.local import StackError, local_stack
from weft_bench.stack.processes import free_port, running

_PATIENCE_S: Final = 60.0
# vLLM on a CPU, as `weft replica` starts it.
_REAL_BLOCK_TOKENS: Final = 32


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a comparison.

    place: properties for the fronts. shape: that of simulated replicas, None for real ones.
    context: longest call, tokens. set_order: sets the order in all of them and empties their
    caches.
    """

    urls: tuple[str, ...]
    place: Place
    context: int
    block_tokens: int
    calls_path: str
    set_order: Callable[[str], None]
    shape: EngineShape | None = None

    @property
    def simulated(self) -> bool:
        """Whether the replicas run without a model."""
        return self.shape is not None

    def reset(self, order: str) -> None:
        """Prepare for the next front: set the order, empty the caches and the call logs."""
        self.set_order(order)
        for url in self.urls:
            _ask("DELETE", url + self.calls_path)

    def answers(self) -> dict[str, Answer]:
        """Return the answers since the last reset, by id."""
        return {
            call["id"]: Answer(
                number,
                call["prompt_tokens"],
                call["cached_tokens"],
                call["output_tokens"],
                call["waiting_s"] + call["service_s"],
            )
            for number, url in enumerate(self.urls)
            for call in _ask("GET", url + self.calls_path)["calls"]
        }

    def behind_s(self) -> float:
        """Return the total delay of simulated replicas behind their pace, real seconds."""
        if not self.simulated:
            return 0.0
        return sum(float(_ask("GET", f"{url}/simulated/state")["behind_s"]) for url in self.urls)


@contextmanager
def simulated_replicas(
    count: int, preset: str, slots: int, kv_blocks: int, speed_up: float, work: Path
) -> Iterator[Replicas]:
    """Start simulated replicas and end them after the block.

    Raises ValueError for an unknown preset, NotReady if a replica does not start.
    """
    (shape,) = shapes(preset, 1, slots, kv_blocks)
    with ExitStack() as stack:
        urls = []
        for number in range(count):
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            command = [
                sys.executable, "-m", "weft_gateway.cli", "bench", "replica",
                "--port", str(port), "--model", SIMULATED, "--policy", "fcfs", "--preset", preset,
                "--slots", str(slots), "--kv-blocks", str(kv_blocks), "--speed-up", str(speed_up),
            ]  # fmt: skip
            log = work / f"replica-{number}.log"
            stack.enter_context(running(command, f"{url}/health", log))
            urls.append(url)

        def set_order(order: str) -> None:
            for url in urls:
                _ask("POST", f"{url}/weft/policy", {"policy": order, "reset_cache": True})

        tokens = shape.kv_blocks * shape.block_tokens
        yield Replicas(
            tuple(urls),
            Place(SIMULATED, tokens, speed_up, shape.cost),
            min(shape.context, tokens),
            shape.block_tokens,
            "/simulated/calls",
            set_order,
            shape,
        )


@contextmanager
def real_replicas(count: int, slots: int, kv_blocks: int) -> Iterator[Replicas]:
    """Start vLLM with the demo model like `weft up`; its gateway only sets orders.

    Raises StackError if it does not start.
    """
    line = ["--replicas", str(count), "--", "--max-num-seqs", str(slots)]
    line += ["--num-gpu-blocks-override", str(kv_blocks), "--enable-prompt-tokens-details"]
    line += ["--middleware", f"{call_log.__name__}.{call_log.CallLog.__name__}"]
    secret = secrets.token_hex(16)
    with local_stack(line, {"WEFT_ENGINE_SECRET": secret}) as base:

        def set_order(order: str) -> None:
            body = {"policy": order, "reset_cache": True}
            if not _ask("POST", f"{base}/weft/policy", body)["applied"]:
                raise StackError(f"an engine rejected the order {order}")

        card = _ask("GET", f"{base}/v1/models")["data"][0]
        found = _ask("GET", f"{base}/health")["replicas"]
        yield Replicas(
            tuple(replica["url"] for replica in found),
            Place(str(card["id"]), kv_blocks * _REAL_BLOCK_TOKENS, secret=secret),
            min(int(card["max_model_len"]), kv_blocks * _REAL_BLOCK_TOKENS),
            _REAL_BLOCK_TOKENS,
            call_log.PATH,
            set_order,
        )


def _ask(method: str, url: str, body: Any = None) -> Any:
    answer = httpx.request(method, url, json=body, timeout=_PATIENCE_S, trust_env=False)
    return answer.raise_for_status().json()
