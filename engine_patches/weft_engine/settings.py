"""The plugin's settings: the object `weft` inside vLLM's `--additional-config`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from weft_engine.orders import DEPRECATED_OPTIONS, build_order

log = logging.getLogger("vllm.weft")


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """policy: name of the order. options: options of the orders. channel: ZMQ address of the API
    server, "" for none. max_displacements: a call is preempted at most this often.
    decide_every: steps from one decision about order and preemption to the next. tags: evict KV
    blocks by their tags. pin_share: the fraction of the cache that may be pinned, 0 to 1. swap_gib:
    host memory for the KV of preempted calls, GiB; 0: recompute it. swap_share: the fraction of the
    swap memory that one tenant may use, above 0 to 1. swap_async: steps continue while the KV of a
    call is loaded.
    """

    policy: str = "warm_plas"
    options: Mapping[str, Any] = field(default_factory=dict)
    channel: str = ""
    max_displacements: int = 3
    decide_every: int = 1
    tags: bool = True
    pin_share: float = 0.5
    swap_gib: float = 0.0
    swap_share: float = 1.0
    swap_async: bool = False

    @classmethod
    def from_config(cls, additional_config: Any) -> PluginSettings:
        """Read and check the settings. ValueError names the wrong one."""
        raw = additional_config.get("weft", {}) if isinstance(additional_config, Mapping) else {}
        if not isinstance(raw, Mapping):
            raise ValueError(f"additional-config 'weft' must be an object, got {raw!r}")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(raw) - known)
        if unknown:
            raise ValueError(
                f"additional-config 'weft' has unknown settings {unknown}; known: {sorted(known)}"
            )
        for name in ("max_displacements", "decide_every"):
            value = raw.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name} must be a whole number, got {value!r}")
        for name in ("tags", "swap_async"):
            if not isinstance(raw.get(name, True), bool):
                raise ValueError(f"{name} must be true or false, got {raw[name]!r}")
        _check_number(raw, "pin_share", 0.0, 1.0)
        _check_number(raw, "swap_gib", 0.0, 1e6)
        _check_number(raw, "swap_share", 1e-9, 1.0)
        settings = cls(**raw)
        build_order(settings.policy, settings.options)
        for old in DEPRECATED_OPTIONS.keys() & settings.options.keys():
            log.warning("order option %s is deprecated: use %s", old, DEPRECATED_OPTIONS[old])
        if settings.max_displacements < 0:
            raise ValueError(f"max_displacements must be >= 0, got {settings.max_displacements}")
        if settings.decide_every < 1:
            raise ValueError(f"decide_every must be >= 1, got {settings.decide_every}")
        return settings


def _check_number(raw: Mapping[str, Any], name: str, low: float, high: float) -> None:
    value = raw.get(name, low)
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not low <= value <= high:
        raise ValueError(f"{name} must be from {low:g} to {high:g}, got {value!r}")
