"""The experiments by name. A new one is one module and one line here."""

from __future__ import annotations

from typing import Final

from loadgen.experiments import agentix_single, limit
from loadgen.experiments.experiment import Experiment

_ALL: Final = (
    agentix_single.FIGURE_12,
    agentix_single.FIGURE_13,
    limit.EXPERIMENT,
)
EXPERIMENTS: Final[dict[str, Experiment]] = {one.name: one for one in _ALL}
