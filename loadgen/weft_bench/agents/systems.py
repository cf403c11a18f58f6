"""Names of the systems of a curve."""

from __future__ import annotations

from typing import Final

# The default order of Weft.
OURS: Final = "resident"
# Bounds that no system reaches.
CLAIRVOYANT: Final = "resident_srpt"
ENDLESS: Final = "endless cache"
# vLLM without Weft, behind a router that places calls in turn.
STOCK: Final = "stock"
STICKY: Final = "sticky until saturated"
PAUSE: Final = "pause and resume"
# Real rivals.
PROGRAMS: Final = "vllm-router programs"
VLLM_STICKY: Final = "vllm-router sticky"
SMG: Final = "smg"
RIVALS: Final = (STOCK, STICKY, PAUSE, PROGRAMS, VLLM_STICKY, SMG)
