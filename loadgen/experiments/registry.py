"""The experiments by name. A new one is one module and one line here."""

from __future__ import annotations

from typing import Final

from loadgen.experiments import (
    agentix_offline,
    agentix_overheads,
    agentix_replicas,
    agentix_single,
    edges,
    limit,
)
from loadgen.experiments.experiment import Experiment

_ALL: Final = (
    agentix_single.FIGURE_12,
    agentix_single.FIGURE_13,
    agentix_replicas.FIGURE_14,
    agentix_replicas.FIGURE_15,
    agentix_offline.FIGURE_16,
    agentix_overheads.FIGURE_17,
    agentix_overheads.FIGURE_18,
    limit.EXPERIMENT,
    edges.EXPERIMENT,
)
EXPERIMENTS: Final[dict[str, Experiment]] = {one.name: one for one in _ALL}
