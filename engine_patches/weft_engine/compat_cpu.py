"""Worker for engines on a CPU; part of `compat`, for the same release.

vLLM samples a token for each piece of a prompt and discards it unless the piece is the last one.
For a call with a seed, it then moves the random generator back by an offset. Generators on the CPU
have no offset, so a seeded call whose prompt is computed in pieces ends the engine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker


class SeededRunner(CPUModelRunner):  # type: ignore[misc]
    """vLLM's model runner; discarded tokens leave the generators of their calls unchanged."""

    def _sample(self, *args: Any, **kwargs: Any) -> Any:
        generators = self._discarded_generators()
        states = {row: generator.get_state() for row, generator in generators.items()}
        output = super()._sample(*args, **kwargs)
        for row, generator in generators.items():
            generator.set_state(states[row])
        return output

    def _bookkeeping_sync(self, *args: Any, **kwargs: Any) -> Any:
        # vLLM moves back the generators that it finds here.
        generators = self._discarded_generators()
        for row in generators:
            del self.input_batch.generators[row]
        try:
            return super()._bookkeeping_sync(*args, **kwargs)
        finally:
            self.input_batch.generators.update(generators)

    def _discarded_generators(self) -> dict[int, Any]:
        """Return the generators of the rows whose tokens are discarded in this step."""
        generators = self.input_batch.generators
        if not generators:
            return {}
        rows = np.nonzero(self.discard_request_mask.np[: self.input_batch.num_reqs])[0]
        return {int(row): generators[int(row)] for row in rows if int(row) in generators}


class CpuWorker(CPUWorker):  # type: ignore[misc]
    """`--worker-cls weft_engine.compat_cpu.CpuWorker`."""

    def init_device(self) -> None:
        """Make the model runner a `SeededRunner`."""
        super().init_device()
        # vLLM has no option for the class of the model runner. The subclass adds no state.
        if type(self.model_runner) is CPUModelRunner:
            self.model_runner.__class__ = SeededRunner
