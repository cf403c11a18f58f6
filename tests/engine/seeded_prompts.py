"""Seeded calls on a real engine on the CPU, with prompts in one piece and in several.

python tests/engine/seeded_prompts.py MODEL_FOLDER

The script prints one JSON object: output tokens of two calls per size of the largest step.
"""

from __future__ import annotations

import json
import os
import sys

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_PLUGINS": "",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}

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
