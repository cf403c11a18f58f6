"""Figures 5 and 7 of Sutradhara on a real engine on the CPU, in a separate process.

`cpu_engine.run` starts it. Arguments: MODEL_FOLDER

Three programs of two iterations, and a cache that just holds the three first ones. The script runs
them with an empty cache before each call, with a cache but no tags (vLLM's order of reuse), and
with tags. It prints one JSON object: cached tokens and outputs of each call.
"""

from __future__ import annotations

import json
import sys
from random import Random
from typing import Any

from vllm import LLM, SamplingParams
from weft_engine.scheduler import WeftScheduler
from weft_engine.tags import Tag, flatten
from weft_engine.wire import CallContext

BLOCK = 32
BLOCKS = 17
# Four blocks of prompt in the first iteration, two of tool output in the second, one of answer.
QUERY, TOOLS, ANSWER = 4 * BLOCK, 2 * BLOCK, BLOCK + 8
# The order in which second iterations come back from their tools (Figure 5, b to d).
CALLS = ("R11", "R21", "R31", "R22", "R12", "R32")


def main(model: str) -> None:
    """Play and print."""
    engine = LLM(
        model=model, dtype="float32", enforce_eager=True, block_size=BLOCK, max_model_len=512,
        num_gpu_blocks_override=BLOCKS, distributed_executor_backend="uni",
        scheduler_cls=WeftScheduler, disable_log_stats=True,
        additional_config={"weft": {"policy": "fcfs"}},
    )  # fmt: skip
    scheduler = engine.llm_engine.engine_core.engine_core.scheduler
    draws = Random(3)
    texts = {p: [draws.randrange(300, 5000) for _ in range(QUERY + TOOLS)] for p in "123"}
    tags = {
        "1": flatten([(QUERY, Tag.USER_QUERY)]),
        "2": flatten([(QUERY, Tag.USER_QUERY), (QUERY + TOOLS, Tag.TOOL_OUTPUT)]),
    }

    def play(*, tagged: bool, cache: bool) -> dict[str, Any]:
        scheduler.forget_cache()
        found: dict[str, Any] = {"hits": {}, "tokens": {}}
        for call in CALLS:
            if not cache:
                scheduler.forget_cache()
            _, program, iteration = call
            # Each run needs new names: the engine remembers calls by their names.
            name = f"{call}-{tagged}-{cache}"
            context = CallContext(
                name, f"R{program}", tags=tuple(tags[iteration]) if tagged else None
            )
            prompt = texts[program][: QUERY + (TOOLS if iteration == "2" else 0)]
            params = SamplingParams(
                temperature=0.0, max_tokens=ANSWER, ignore_eos=True, extra_args=context.to_xargs()
            )
            (output,) = engine.generate(
                [{"prompt_token_ids": prompt}], [params], use_tqdm=False
            )  # fmt: skip
            found["hits"][call] = output.num_cached_tokens
            found["tokens"][call] = list(output.outputs[0].token_ids)
        pool = scheduler.kv_cache_manager.block_pool
        found["in_use"] = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        found["violations"] = scheduler.violations()
        return found

    runs = {
        "no cache": play(tagged=False, cache=False),
        "by age": play(tagged=False, cache=True),
        "by tag": play(tagged=True, cache=True),
    }
    print("RESULT " + json.dumps(runs))


if __name__ == "__main__":
    main(sys.argv[1])
