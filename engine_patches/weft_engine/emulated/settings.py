"""Settings of the emulated worker: the object `emulated` in vLLM's `--additional-config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from weft_engine.emulated.presets import EngineShape

KEY: Final = "emulated"


class EmulatedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """name: of the preset. shape: costs and sizes of the engine. dilate: factor on all times.
    answer_tokens: length of the answer to a call without a limit."""

    name: str
    shape: EngineShape
    dilate: Annotated[float, Meta(gt=0)] = 1.0
    answer_tokens: Annotated[int, Meta(ge=1)] = 256

    @classmethod
    def from_config(cls, additional_config: Any) -> EmulatedSettings:
        """Read and check the settings. ValueError names the wrong one."""
        config = additional_config if isinstance(additional_config, Mapping) else {}
        try:
            return msgspec.convert(config.get(KEY, {}), cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"additional-config: {KEY}: {error}") from None

    def as_config(self) -> dict[str, Any]:
        """Return the entry of `--additional-config`."""
        return {KEY: msgspec.to_builtins(self)}
