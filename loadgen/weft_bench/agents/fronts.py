"""The real systems of the curve: Weft, and the proxies that take its place before the engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from weft_engine.emulated.cost_model import CostModel

from weft_bench.agents.systems import PROGRAMS, SMG, STOCK, VLLM_STICKY
from weft_bench.stack import proxies
from weft_bench.stack.proxies import Proxy

# Every call carries the agent's session under all header names that the fronts document. Each front
# reads one of them and ignores the others.
SESSION_HEADERS: Final = ("x-session-id", "x-smg-routing-key")
_SMG: Final = "smg==1.13.0"
# vllm-router's times from its documentation, multiplied by the dilation of the engines.
_SCHEDULING_TIMES: Final = {
    "metrics_interval_seconds": 1.0,
    "queue_timeout_seconds": 600.0,
    "force_resume_timeout_seconds": 300.0,
    "paused_retention_ttl_seconds": 1800.0,
    "shared_prefix_freshness_warmup_seconds": 100.0,
    "max_acting_ttl_seconds": 10.0,
}
# A shorter interval of polling the engines would cost more than it is worth.
_SHORTEST_INTERVAL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Place:
    """Properties of the engines that fronts may need.

    kv_tokens: capacity of one engine. cost: of its steps, None if unknown. dilate: factor on all
    times of the engines.
    """

    kv_tokens: int
    dilate: float = 1.0
    cost: CostModel | None = None


@dataclass(frozen=True, slots=True)
class Front:
    """A system. proxy: in front of stock engines; None for Weft, with this order in its engines.
    about: one line for readers.
    """

    about: str
    proxy: Proxy | None = None
    order: str = ""


def fronts(place: Place, orders: Sequence[str]) -> dict[str, Front]:
    """Return all systems by name. orders: Weft runs each of them."""

    def router(about: str, policy: str, scheduled: dict[str, Any] | None = None) -> Front:
        return Front(about, proxies.vllm_router("vllm-router", policy, scheduled))

    version = router("", "").proxy
    assert version is not None
    pinned = version.requirement.replace("==", " ")
    return {
        **{order: Front(f"Weft with the order `{order}`", order=order) for order in orders},
        PROGRAMS: router(
            f"{pinned} with program scheduling, its token capacity set to the cache's",
            "consistent_hash",
            scheduling(place),
        ),
        VLLM_STICKY: router(f"{pinned}, sticky by session", "sticky_least_loaded"),
        SMG: Front(f"{_SMG.replace('==', ' ')}, cache aware", _smg()),
        STOCK: router(f"stock vLLM behind {pinned} in turn", "round_robin"),
    }


def scheduling(place: Place) -> dict[str, Any]:
    """Return vllm-router's configuration of program scheduling, as its documentation recommends.

    It has the global queue, the replicas' capacity, and their costs if they are known.
    """
    dilate = place.dilate
    found: dict[str, Any] = {
        # Sessions by header. The default only reads vllm-router's own field of the body.
        "program_scheduling_enable_key": "auto",
        "global_queue": True,
        "token_capacity_per_target": place.kv_tokens,
        **{name: seconds * dilate for name, seconds in _SCHEDULING_TIMES.items()},
    }
    interval = "metrics_interval_seconds"
    found[interval] = max(_SHORTEST_INTERVAL_S, found[interval])
    cost = place.cost
    if cost is not None:
        step = cost.step_s + cost.weights_s
        found["prefill_cost_model"] = {
            "intercept_seconds": step * dilate,
            "linear_seconds_per_1k_tokens": 1000 * cost.prefill_token_s * dilate,
            # A prompt of n tokens has n x n / 2 pairs.
            "quadratic_seconds_per_1k_tokens_squared": 1000**2 * cost.prefill_pair_s / 2 * dilate,
        }
        found["decode_throughput_model"] = {
            "fixed_step_seconds": step * dilate,
            "batch_step_seconds_per_request": cost.decode_sequence_s * dilate,
            "context_step_seconds_per_token": cost.context_token_s * dilate,
        }
    return found


def _smg() -> Proxy:
    def command(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
        return [
            str(programs / "smg"), "launch", "--worker-urls", *engines, "--policy", "cache_aware",
            "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(port + 1),
            "--prometheus-host", "127.0.0.1", "--backend", "vllm",
            "--disable-tokenizer-autoload",
        ]  # fmt: skip

    return Proxy("smg", _SMG, command)
