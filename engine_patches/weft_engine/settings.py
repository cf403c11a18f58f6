"""The plugin's settings: the object `weft` inside vLLM's `--additional-config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from weft_engine.orders import OrderOptions, build_order


class PluginSettings(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """policy: name of the order. options: options of the orders. channel: ZMQ address of the API
    server, "" for none. max_displacements: a call is preempted at most this often. tags: evict KV
    blocks by their tags. pin_share: the fraction of the cache that may be pinned, 0 to 1. swap_gib:
    host memory for the KV of preempted calls, GiB; 0: recompute it. swap_share: the fraction of the
    swap memory that one tenant may use, above 0 to 1. swap_async: steps continue while the KV of a
    call is loaded.
    """

    policy: str = "resident"
    options: OrderOptions = OrderOptions()
    channel: str = ""
    max_displacements: Annotated[int, Field(ge=0)] = 3
    tags: bool = True
    pin_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    swap_gib: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    swap_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    swap_async: bool = False

    @classmethod
    def from_config(cls, additional_config: Any) -> PluginSettings:
        """Read and check the settings. ValueError names the wrong one."""
        raw = additional_config.get("weft", {}) if isinstance(additional_config, Mapping) else {}
        try:
            settings = cls.model_validate(raw)
        except ValidationError as error:
            wrong = [
                f"{'.'.join(map(str, ('weft', *one['loc'])))}: {one['msg']}, got {one['input']!r}"
                for one in error.errors()
            ]
            raise ValueError(f"additional-config: {'; '.join(wrong)}") from None
        build_order(settings.policy, settings.options)
        return settings
