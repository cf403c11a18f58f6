"""Imports that the measuring processes share, loaded once before they fork."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
# Without vLLM, the experiments that need it report that themselves.
with contextlib.suppress(ImportError, RuntimeError):
    import_module("weft_bench.virtual.world")
