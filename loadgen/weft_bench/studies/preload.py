"""What the processes that measure have in common: imported once, before they are forked."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
# Without vLLM, experiments that need it say so themselves.
with contextlib.suppress(ImportError, RuntimeError):
    import_module("weft_bench.virtual.world")
