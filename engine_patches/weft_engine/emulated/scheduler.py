"""Weft's scheduler on the emulated device's clock."""

from __future__ import annotations

import time
from typing import Any

from weft_engine.emulated.settings import EmulatedSettings
from weft_engine.scheduler import WeftScheduler


class EmulatedScheduler(WeftScheduler):
    """Measures service and waiting in engine seconds, so that `--dilate` changes no decision."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
        self._emulated = EmulatedSettings.from_config(config.additional_config)
        dilate = self._emulated.dilate
        # Before vLLM's own constructor, because the parts of the scheduler use the clock.
        self.clock = lambda: time.monotonic() / dilate
        super().__init__(*args, **kwargs)

    def state(self) -> dict[str, Any]:
        """Return the plugin's state and the name of the emulated engine."""
        return super().state() | {"emulated": self._emulated.name}
