"""Seeded calls on a real engine on the CPU, with prompts in one piece and in several.

`cpu_engine.run` starts it. Arguments: MODEL_FOLDER

The script prints one JSON object: output tokens of two calls per size of the largest step.
"""

from __future__ import annotations

import json
import sys

from vllm import LLM, SamplingParams


def main(model: str) -> None:
    """Play and print."""
    engine = LLM(
        model=model, dtype="float32", enforce_eager=True, block_size=32, max_model_len=512,
        distributed_executor_backend="uni", enable_prefix_caching=False, disable_log_stats=True,
        worker_cls="weft_engine.compat_cpu.CpuWorker",
    )  # fmt: skip
    scheduler = engine.llm_engine.engine_core.engine_core.scheduler
    prompts = [
        {"prompt_token_ids": [300 + (7 * i) % 1000 for i in range(size)]} for size in (90, 230)
    ]
    params = [SamplingParams(temperature=1.0, seed=3, max_tokens=12, ignore_eos=True)] * 2
    tokens = {}
    for step in (512, 64, 40):
        scheduler.max_num_scheduled_tokens = step
        outputs = engine.generate(prompts, params, use_tqdm=False)
        tokens[step] = [list(output.outputs[0].token_ids) for output in outputs]
    print("RESULT " + json.dumps(tokens))


if __name__ == "__main__":
    main(sys.argv[1])
