"""The synthetic workloads by name."""

from __future__ import annotations

from typing import Final

from weft_bench.workloads import agentix, answers, crowds, sutradhara, text2sql
from weft_bench.workloads.synthetic import program
from weft_bench.workloads.workload import Workload

_ALL: Final = (
    *agentix.WORKLOADS,
    *crowds.WORKLOADS,
    *sutradhara.WORKLOADS,
    *text2sql.WORKLOADS,
    *answers.WORKLOADS,
    Workload(
        "dialogues",
        "Agentix, section 6.1: calls as BFCL's, with texts",
        program,
        {"calls mean": 10.75, "calls max": 70},
    ),
)
WORKLOADS: Final = {workload.name: workload for workload in _ALL}
