"""vLLM's OffloadingConnector in symbols: its loads and stores between a worker's KV memory and the
host."""

from __future__ import annotations

from typing import Any

from harness import Engine
from memory import KVMemory
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiKVConnectorWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.outputs import KVConnectorOutput

# Bytes of a block of the harness's one layer.
BLOCK_BYTES = 16 * 2 * 2 * 16 * 4


def offloading(blocks: int) -> dict[str, Any]:
    """The connector with host memory for this many blocks."""
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": blocks * BLOCK_BYTES},
    }


def offloading_beside(swap: KVTransferConfig, blocks: int) -> KVTransferConfig:
    """The connector beside another one, inside a MultiConnector."""
    names = ("kv_connector", "kv_role", "kv_connector_module_path", "kv_connector_extra_config")
    connectors = [{name: getattr(swap, name) for name in names}, offloading(blocks)]
    return KVTransferConfig(
        kv_connector="MultiConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"connectors": connectors},
    )


class HostMemory(KVMemory):
    """Stores run after the step that computes their blocks, or at once if it overwrites them. Loads
    run at the beginning of their step. The worker reports both one to three steps later.

    loaded: blocks. most: the largest number of requests that ran or were loaded at once.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.loaded = self.most = 0
        self._saved: dict[int, list[int | None]] = {}
        self._stores: dict[int, Any] = {}
        self._loads: dict[int, Any] = {}
        # Jobs to report: the request of a load, and the steps until then.
        self._jobs: dict[int, tuple[str, int]] = {}
        self._multi = False
        engine._loaded = self._reported  # type: ignore[method-assign]

    def _run(self, output: Any) -> None:
        plan, swap = output.kv_connector_metadata, None
        self._multi = hasattr(plan, "metadata")
        if self._multi:
            swap, plan = plan.metadata
        for number in list(self._stores):
            self._store(number)
        self._stores = dict(plan.store_jobs)
        for number in plan.jobs_to_flush or ():
            self._store(number)
        self._loads = plan.load_jobs
        scheduler = self._engine.scheduler
        self.most = max(self.most, len(scheduler.running) + len(scheduler.loading()))
        output.kv_connector_metadata = swap
        super()._run(output)

    def _load(self) -> None:
        for number, job in self._loads.items():
            for source, target in zip(job.src_spec.block_ids, job.dst_spec.block_ids, strict=True):
                self._device[int(target)] = list(self._saved[int(source)])
                self.loaded += 1
            self._jobs[number] = job.req_id, 1 + number % 3

    def _store(self, number: int) -> None:
        job = self._stores.pop(number, None)
        if job is None:
            return
        for source, target in zip(job.src_spec.block_ids, job.dst_spec.block_ids, strict=True):
            self._saved[int(target)] = list(self._block(int(source)))
        self._jobs[number] = "", 1 + number % 3

    def _reported(self, _plan: Any) -> KVConnectorOutput | None:
        ended = {n: name for n, (name, left) in self._jobs.items() if left == 1}
        self._jobs = {n: (name, left - 1) for n, (name, left) in self._jobs.items() if left > 1}
        if not ended:
            return None
        report: Any = OffloadingWorkerMetadata()
        for number in ended:
            report.mark_completed(number)
        if self._multi:
            report = MultiKVConnectorWorkerMetadata(metadata=(None, report))
        arrived = {name for name in ended.values() if name in self._engine.scheduler.requests}
        return KVConnectorOutput(finished_recving=arrived or None, kv_connector_worker_meta=report)
