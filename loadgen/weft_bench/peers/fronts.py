"""Fronts of the replicas: every row of the comparison and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from weft_engine.emulated.cost_model import CostModel

from weft_bench.peers.turns import slo_file
from weft_bench.stack import proxies
from weft_bench.stack.proxies import Proxy

# Every call carries the agent's session under all header names that the fronts document. Each front
# reads one of them and ignores the others.
SESSION_HEADERS: Final = ("x-session-id", "x-smg-routing-key", "x-litellm-session-id")
# The class of the target of a turn. The other proxies know no targets of turns and ignore it.
SLO_HEADER: Final = "x-weft-slo"
# The orders that serve calls by their budgets, with their balancers: ours, that of HexGen-Flow, and
# that of the rivals in its experiments.
_BY_BUDGET: Final = {
    "slack": "soonest",
    "urgency": "work",
    "qlm": "round_robin",
    "llf": "round_robin",
}
ROUND_ROBIN: Final = "weft/round_robin"
STOCK: Final = "stock"
WEFT: Final = "weft"
_SMG: Final = "smg==1.13.0"
_SGLANG: Final = "sglang-router==0.3.2"
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
    """Properties of the replicas that fronts may need.

    kv_tokens: capacity of one replica. cost: of its steps, None if unknown. dilate: factor on all
    times of the engines. secret: authenticates our gateway to the plugin; "" if the plugin needs
    none.
    """

    model: str
    kv_tokens: int
    dilate: float = 1.0
    cost: CostModel | None = None
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Front:
    """One row.

    order: of the replicas. reads: the header with the session, "" for none. keyed: whether calls
    carry SESSION_HEADERS. ends: whether the client reports the end of a session at the front's
    documented path.
    """

    name: str
    proxy: Proxy
    order: str = "fcfs"
    reads: str = ""
    keyed: bool = True
    ends: bool = False

    @property
    def version(self) -> str:
        """The peer's pinned version; "" for Weft."""
        return self.proxy.requirement

    @property
    def scheduler(self) -> str:
        """The scheduler of its emulated engines: vLLM's own for a peer, the plugin's for Weft."""
        return STOCK if self.version else WEFT


def fronts(place: Place, orders: Sequence[str], *, targets: bool = False) -> dict[str, Front]:
    """Return all rows by name.

    orders: Weft plays each of them, with all calls at home under the first, and without any key
    under the last. targets: turns have targets. Orders for deadlines then get an SLO file and their
    balancer; automatic prefills are off, because a recorded prompt does not contain the answers
    that these engines generate.
    """
    vllm = _vllm_routers(place)
    told = {"WEFT_ENGINE_SECRET": place.secret} if place.secret else {}
    ours = replace(proxies.OURS, environment=told)
    if targets:
        ours = replace(ours, command=proxies.weft_with(auto_prefill=False))
    round_robin = replace(ours, environment={**told, "WEFT_BALANCER": "round_robin"})
    rows = [
        Front(ROUND_ROBIN, round_robin),
        *vllm,
        Front("smg/cache_aware", _rust("smg", _SMG, "cache_aware")),
        Front("smg/manual", _rust("smg", _SMG, "manual"), reads="x-smg-routing-key"),
        Front("sglang-router/cache_aware", _rust("sglang-router", _SGLANG, "cache_aware")),
        Front("litellm/session_affinity", _litellm(place.model), reads="x-litellm-session-id"),
        *(
            Front(
                f"weft/{order}",
                _by_budget(ours, order) if targets and order in _BY_BUDGET else ours,
                order,
                reads="x-session-id",
                ends=True,
            )
            for order in orders
        ),
    ]
    if orders:
        # Short calls also go home. This shows the cost and gain of Algorithm 2's threshold.
        at_home = replace(ours, command=proxies.weft_with(locality_threshold_tokens=0))
        first, last = orders[0], orders[-1]
        rows.append(Front(f"weft/{first}/at-home", at_home, first, reads="x-session-id", ends=True))
        rows.append(Front(f"weft/{last}/no-key", ours, last, keyed=False))
    return {row.name: row for row in rows}


def _by_budget(ours: Proxy, order: str) -> Proxy:
    """Return Weft with the targets of turns, and the balancer of an order for deadlines."""

    def command(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
        file = work / "slo.yaml"
        file.write_text(slo_file())
        line = ours.command(programs, engines, port, work)
        return [*line, "--slo", str(file), "--balancer", _BY_BUDGET[order]]

    return replace(ours, command=command)


def _vllm_routers(place: Place) -> list[Front]:
    """Return vllm-router's rows: two policies, and its program scheduling with a third."""
    name, key = "vllm-router", "x-session-id"

    def made(policy: str, scheduling: dict[str, Any] | None = None) -> Proxy:
        return proxies.vllm_router(name, policy, scheduling)

    return [
        Front(f"{name}/sticky_least_loaded", made("sticky_least_loaded"), reads=key, ends=True),
        Front(f"{name}/cache_aware", made("cache_aware")),
        Front(
            f"{name}/programs",
            made("consistent_hash", scheduling(place)),
            reads=key,
            ends=True,
        ),
    ]


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


def _rust(name: str, requirement: str, policy: str) -> Proxy:
    """Return smg or sglang-router, from which smg derives; both have the same command line."""

    def command(programs: Path, engines: Sequence[str], port: int, work: Path) -> list[str]:
        line = [
            str(programs / name), "launch", "--worker-urls", *engines, "--policy", policy,
            "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(port + 1),
            "--prometheus-host", "127.0.0.1",
        ]  # fmt: skip
        if name == "smg":
            line += ["--backend", "vllm", "--disable-tokenizer-autoload"]
        if policy == "manual":
            line += ["--assignment-mode", "min_load"]
        return line

    return Proxy(name, requirement, command)


def _litellm(model: str) -> Proxy:
    checks = '  optional_pre_call_checks: ["session_affinity"]\n'
    return proxies.litellm("litellm", model, checks)
