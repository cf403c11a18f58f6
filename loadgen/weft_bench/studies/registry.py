"""The experiments by name. A new experiment is one module and one line here."""

from __future__ import annotations

from typing import Final

from weft_bench.studies import (
    agentix_offline,
    agentix_overheads,
    agentix_replicas,
    agentix_single,
    edges,
    hexgen_parts,
    hexgen_pools,
    hexgen_recovery,
    hexgen_robust,
    hexgen_switches,
    hexgen_tables,
    hexgen_tenants,
    hexgen_tight,
    memory,
    sutradhara_load,
    sutradhara_parts,
    why,
)
from weft_bench.studies.experiment import Experiment

_ALL: Final = (
    agentix_single.FIGURE_12,
    agentix_single.FIGURE_13,
    agentix_replicas.FIGURE_14,
    agentix_replicas.FIGURE_15,
    agentix_offline.FIGURE_16,
    agentix_overheads.FIGURE_17,
    agentix_overheads.FIGURE_18,
    memory.EXPERIMENT,
    edges.EXPERIMENT,
    hexgen_pools.FIGURE_4,
    hexgen_pools.FIGURE_5,
    hexgen_pools.FIGURE_6,
    hexgen_robust.FIGURE_7,
    hexgen_recovery.RECOVERY,
    hexgen_tight.TIGHT,
    hexgen_tenants.FIGURE_8,
    hexgen_parts.FIGURE_9,
    hexgen_switches.SWITCHES,
    hexgen_parts.FIGURE_10,
    hexgen_tables.TABLE_2,
    hexgen_robust.LIMIT,
    hexgen_robust.EDGES,
    sutradhara_load.FIGURE_8,
    sutradhara_parts.TABLE_2,
    sutradhara_load.FIGURE_9C,
    sutradhara_parts.FIGURE_11,
    sutradhara_parts.FIGURE_12,
    why.EXPERIMENT,
)
EXPERIMENTS: Final[dict[str, Experiment]] = {one.name: one for one in _ALL}
