"""A real engine on the CPU, in a separate process, that preempts calls at random.

`cpu_engine.run` starts it. Arguments: MODEL_FOLDER [async]

The script runs 120 greedy calls repeatedly on one engine and prints one JSON object: the outputs of
each run, and the swap's counts. Runs: undisturbed; preempted with swap; preempted without;
preempted with a buffer of sixteen blocks; under `resident` with short calls; and with a swap that
is broken on purpose. async: with
asynchronous loads.
"""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

from vllm import LLM, SamplingParams
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.sampling_params import StructuredOutputsParams
from weft_engine import residents
from weft_engine.engine_link import Command
from weft_engine.scheduler import WeftScheduler
from weft_engine.swap.slots import HostSlots

# The engine polls while a thread loads blocks. It would keep that thread off the GIL for 5 ms.
sys.setswitchinterval(2e-4)

CALLS = 120
BLOCKS = 40


class Preemption(WeftScheduler):
    """Preempts running calls at random steps while it is switched on."""

    random: Random | None = None
    forced = 0
    limited = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step, which may first preempt a call."""
        if self.random is not None and self.running and self.random.random() < 0.4:
            victim = self.random.choice(self.running)
            call = self.calls.of(victim.request_id)
            if call is not None and call.displaced < 4 and self.can_be_preempted(victim):
                call.displaced += 1
                # Behind all others, so that its blocks are overwritten before it resumes.
                call.rank = (*call.rank[:2], call.rank[2] + 10_000)
                self.preempt(victim, self.clock())
                self.forced += 1
        output = super().schedule(*args, **kwargs)
        self.limited += self.prompt_budget is not None
        return output


def calls() -> tuple[list[dict[str, list[int]]], list[SamplingParams]]:
    """120 calls of mixed lengths; some share a prefix, some must follow a grammar."""
    random = Random(7)
    shared = [random.randrange(300, 5000) for _ in range(64)]
    prompts, params = [], []
    for number in range(CALLS):
        own = [random.randrange(300, 5000) for _ in range(random.randint(1, 120))]
        prompts.append({"prompt_token_ids": (shared if number % 3 == 0 else []) + own})
        tokens = random.randint(1, 40)
        shape = StructuredOutputsParams(regex="[a-z]{20,60}") if number % 8 == 0 else None
        params.append(
            SamplingParams(
                temperature=0.0, max_tokens=tokens, ignore_eos=shape is None,
                structured_outputs=shape,
            )
        )  # fmt: skip
    return prompts, params


def main(model: str, load_async: bool) -> None:
    """Play and print."""
    engine = LLM(
        model=model, dtype="float32", enforce_eager=True, block_size=32, max_model_len=1024,
        max_num_seqs=8, num_gpu_blocks_override=BLOCKS, distributed_executor_backend="uni",
        scheduler_cls=Preemption, disable_log_stats=True,
        additional_config={"weft": {"policy": "plas", "swap_gib": 0.01}},
        kv_transfer_config={
            "kv_connector": "SwapConnector", "kv_role": "kv_both",
            "kv_connector_module_path": "weft_engine.swap.connector",
            "kv_connector_extra_config": {"swap_gib": 0.01, "load_async": load_async},
        },
    )  # fmt: skip
    scheduler = engine.llm_engine.engine_core.engine_core.scheduler
    swap = scheduler._swap
    prompts, params = calls()
    found: dict[str, Any] = {}

    def play(name: str, random: Random | None) -> None:
        scheduler.forget_cache()
        scheduler.random, scheduler.forced, scheduler.limited = random, 0, 0
        before = swap.state()
        outputs = engine.generate(prompts, params, use_tqdm=False)
        after = swap.state()
        pool = scheduler.kv_cache_manager.block_pool
        found[name] = {
            "tokens": [list(output.outputs[0].token_ids) for output in outputs],
            "forced": scheduler.forced,
            "limited": scheduler.limited,
            "left": after["used"],
            "free": pool.get_num_free_blocks() - (pool.num_gpu_blocks - 1),
            "violations": scheduler.violations(),
            **{key: after[key] - before[key] for key in ("swapped_out", "swapped_in", "dropped")},
        }

    play("undisturbed", None)
    play("swap", Random(1))
    scheduler._swap = None
    play("no swap", Random(1))
    scheduler._swap = swap
    swap._slots = HostSlots(16)
    play("small", Random(1))
    # Half of the calls are short.
    residents._SMALL = 1 / 16
    scheduler.obey(Command(policy="resident"))
    play("short calls", None)
    scheduler.obey(Command(policy="plas"))
    # Control: copies out that do not happen must change outputs.
    swap._slots = HostSlots(swap._count)
    get_kv_transfer_group().handle_preemptions = lambda metadata: None
    play("broken", Random(1))
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], "async" in sys.argv[2:])
