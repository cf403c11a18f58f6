"""A call that lineage has placed."""

from __future__ import annotations

from gateway.programs.lineage.rules import Verdict
from gateway.programs.lineage.sketch import Sketch


class Asked:
    """What is needed to remember the call's answer."""

    __slots__ = ("sketch", "tenant", "verdict")

    def __init__(self, tenant: str, sketch: Sketch, verdict: Verdict) -> None:
        self.tenant = tenant
        self.sketch = sketch
        self.verdict = verdict
