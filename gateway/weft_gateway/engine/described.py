"""Validates an engine's description of itself: its models, and whether it runs Weft's plugin. Pure.

The result is forwarded to clients (`GET /v1/models`), serialised (`/health`) and used in decisions.
Validated values are safe for all three. Arguments are JSON parsed by orjson: no NaN, no infinity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import orjson

from weft_gateway.model.load import EngineLoad
from weft_gateway.policies.costs import EngineCosts, StepCosts

MAX_MODELS: Final = 10_000
MAX_ID: Final = 512
MAX_CARD_BYTES: Final = 16_384
_MAX_DEPTH: Final = 8
# The cache of each engine of a vLLM server, in its Prometheus metrics.
_CACHE_INFO: Final = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
# The requests in each engine of a vLLM server.
_REQUESTS: Final = re.compile(
    r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\d{1,9})(?:\.\d{0,9})?$", re.MULTILINE
)
# The load of each engine of a vLLM server.
_LOAD: Final = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc"
    r"|generation_tokens_total)(?:\{.*\})? (\d{1,15}(?:\.\d{0,17})?(?:e[+-]?\d\d?)?)$",
    re.MULTILINE,
)
# Names of programs that are read, and the longest one.
_MOST_PROGRAMS: Final = 4096
_MOST_NAME: Final = 64
_LABEL: Final = re.compile(r'\b(num_gpu_blocks|block_size|enable_prefix_caching)="(\w{0,12})"')
# A larger capacity is an error, and its marks would use the gateway's memory.
MAX_ROOM_TOKENS: Final = 100_000_000
# More calls at once than any server runs.
MAX_SLOTS: Final = 65_536
# In the order of `StepCosts`. A cost above an hour is an error.
_STEP_COSTS: Final = (
    "step_s", "weights_s", "prefill_token_s", "decode_sequence_s", "context_token_s",
    "prefill_pair_s",
)  # fmt: skip
_MOST_S: Final = 3600.0


def models_of(answer: Any) -> list[dict[str, Any]]:
    """Return the well-formed models of a parsed `/v1/models` answer. Raises ValueError if it is not
    a list of models or has no well-formed model.
    """
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise ValueError("not a list of models")
    cards = [card for card in map(_card, listed[:MAX_MODELS]) if card is not None]
    if listed and not cards:
        raise ValueError("no model has an id")
    return cards


def _card(card: Any) -> dict[str, Any] | None:
    if not isinstance(card, dict):
        return None
    name = card.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ID or not shallow(card):
        return None
    if len(orjson.dumps(card)) > MAX_CARD_BYTES:
        return None
    length = card.get("max_model_len")
    if type(length) is not int or length <= 0:
        return {key: value for key, value in card.items() if key != "max_model_len"}
    return card


def shallow(value: Any) -> bool:
    """Whether a value has at most 8 levels of nesting, so that any code can traverse it."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return True
        level = inner
    return False


def owners(cards: list[dict[str, Any]]) -> frozenset[str | None]:
    """Return the `owned_by` values of the models. Contains None if a model has no such value."""
    named = [card.get("owned_by") for card in cards] or [None]
    return frozenset(name if isinstance(name, str) and name else None for name in named)


def is_gateway(body: bytes) -> bool:
    """Whether an answer of `/health` comes from a Weft gateway."""
    if not body.startswith(b"{"):
        return False
    try:
        answer = orjson.loads(body)
    except ValueError:
        return False
    return isinstance(answer.get("table"), dict) and isinstance(answer.get("replicas"), list)


def runs_plugin(answer: Any) -> bool:
    """Whether a parsed `/weft/state` answer comes from Weft's plugin."""
    return isinstance(answer, dict) and isinstance(answer.get("weft"), dict)


def cache_room(answer: dict[str, Any]) -> int | None:
    """Return the prefix cache capacity in tokens that `/weft/state` reports, or None. If several
    engines share a server, the engine that takes a call is unknown, so the smallest capacity
    counts.
    """
    rooms = _whole_numbers(answer, "cache_tokens")
    return min(max(0, min(rooms)), MAX_ROOM_TOKENS) if rooms else None


def slots(answer: dict[str, Any]) -> int:
    """Return the slots that `/weft/state` reports, 0 if it reports none. Those of several engines
    that share a server are added.
    """
    return min(max(0, sum(_whole_numbers(answer, "slots"))), MAX_SLOTS)


def _whole_numbers(answer: dict[str, Any], name: str) -> list[int]:
    """Return a member of each engine's state, without those that are no whole numbers."""
    engines = answer.get("engines")
    states = [one for one in engines if isinstance(one, dict)] if isinstance(engines, list) else []
    return [state[name] for state in states if type(state.get(name)) is int]


def engine_costs(answer: dict[str, Any]) -> EngineCosts | None:
    """Return the step costs that `/weft/state` reports, None without well-formed ones. Several
    engines that share a server count as one with the mean costs and all slots.
    """
    engines = answer.get("engines")
    states = [_costs(state) for state in (engines if isinstance(engines, list) else ())]
    known = [state for state in states if state is not None]
    if not known or len(known) < len(states):
        return None
    steps = [sum(column) / len(known) for column in zip(*[one[0] for one in known], strict=True)]
    # A decoding sequence takes at least the arithmetic of a prompt token. The weights hide it in
    # small batches, so the fit may be too low.
    steps[3] = max(steps[3], steps[2])
    slots, room = sum(one[1] for one in known), sum(one[2] for one in known)
    return EngineCosts(replace(StepCosts(*steps), together=slots), room)


def costs_json(found: EngineCosts) -> dict[str, float]:
    """Return step costs by the names that `/weft/state` has for them, and `kv_tokens`."""
    steps = found.steps
    values = (
        steps.step_s, steps.weights_s, steps.prefill_token_s, steps.decode_s, steps.context_token_s,
        steps.prefill_pair_s,
    )  # fmt: skip
    return {**dict(zip(_STEP_COSTS, values, strict=True)), "kv_tokens": found.kv_tokens}


def _costs(state: Any) -> tuple[list[float], int, int] | None:
    """Return one engine's costs, slots and KV tokens."""
    costs = state.get("costs") if isinstance(state, dict) else None
    if not isinstance(costs, dict):
        return None
    # Plugins of earlier releases do not report attention.
    costs = {"prefill_pair_s": 0.0, **costs}
    steps = [costs.get(name) for name in _STEP_COSTS]
    limits = [state.get(name) for name in ("slots", "kv_blocks", "block_tokens")]
    if not all(isinstance(cost, int | float) and 0 <= cost <= _MOST_S for cost in steps):
        return None
    if not all(type(limit) is int and 0 < limit <= MAX_ROOM_TOKENS for limit in limits):
        return None
    return steps, limits[0], min(limits[1] * limits[2], MAX_ROOM_TOKENS)  # type: ignore[return-value]


def cache_sizes(metrics: str) -> list[int]:
    """Return the KV cache sizes in tokens of the engines whose vLLM metrics these are. Empty if an
    engine reports none or does not reuse contexts.
    """
    sizes = []
    for labels in _CACHE_INFO.findall(metrics):
        found = dict(_LABEL.findall(labels))
        counts = found.get("num_gpu_blocks", ""), found.get("block_size", "")
        if found.get("enable_prefix_caching") == "False" or not all(map(str.isdecimal, counts)):
            return []
        sizes.append(min(int(counts[0]) * int(counts[1]), MAX_ROOM_TOKENS))
    return sizes


def engine_requests(metrics: str) -> int | None:
    """Return the requests that run or wait in the engines whose vLLM metrics these are, None if
    they report none.
    """
    counts = [int(count) for count in _REQUESTS.findall(metrics)]
    return sum(counts) if counts else None


def engine_load(metrics: str, state: Any) -> EngineLoad:
    """Return the load that vLLM's metrics and, if the engine runs the plugin, a parsed
    `/weft/state` report. The engines behind one address count together.
    """
    sums: dict[str, float] = {}
    engines = 0
    for name, value in _LOAD.findall(metrics):
        sums[name] = sums.get(name, 0.0) + float(value)
        engines += name == "kv_cache_usage_perc"
    blocks = size = 0
    for labels in _CACHE_INFO.findall(metrics):
        found = dict(_LABEL.findall(labels))
        counts = found.get("num_gpu_blocks", ""), found.get("block_size", "")
        if all(map(str.isdecimal, counts)):
            blocks, size = blocks + int(counts[0]), int(counts[1])
    named = [part for part in _states(state) if isinstance(part.get("programs"), dict)]
    programs = [part["programs"] for part in named]
    return EngineLoad(
        int(sums.get("num_requests_running", 0)),
        int(sums.get("num_requests_waiting", 0)),
        min(1.0, sums.get("kv_cache_usage_perc", 0.0) / max(1, engines)),
        blocks,
        size,
        sums.get("generation_tokens_total", 0.0),
        frozenset(name for part in programs for name in _names(part.get("resident"))),
        frozenset(name for part in programs for name in _names(part.get("running"))),
        {name: ahead for part in programs for name, ahead in _ahead(part.get("held"))},
        bool(named),
    )


def _states(answer: Any) -> list[dict[str, Any]]:
    engines = answer.get("engines") if runs_plugin(answer) else None
    return [one for one in engines if isinstance(one, dict)] if isinstance(engines, list) else []


def _names(found: Any) -> list[str]:
    names = found[:_MOST_PROGRAMS] if isinstance(found, list) else []
    return [name for name in names if isinstance(name, str) and len(name) <= _MOST_NAME]


def _ahead(found: Any) -> Iterator[tuple[str, int]]:
    for name in _names(list(found)) if isinstance(found, dict) else ():
        if type(found[name]) is int:
            yield name, found[name]
