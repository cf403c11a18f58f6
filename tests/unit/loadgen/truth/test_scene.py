"""The scene of `weft bench truth`."""

from __future__ import annotations

import json

import pytest
from weft_bench.truth.scene import model, workload


def test_programs_have_exact_lengths_that_fit_the_model():
    programs = workload(1, 20)
    assert programs == workload(1, 20)
    assert programs != workload(2, 20)
    for program in programs:
        for call in program.calls:
            assert call.prompt_tokens == sum(part.tokens for part in call.call.parts)
            assert call.prompt_tokens + call.max_tokens < 4096
            # Answers do not return: the next prompt contains the recorded answer.
            assert call.call.answer == ""


def test_every_fifth_program_sends_eight_parallel_calls_three_times():
    programs = workload(1, 10)
    assert [len(program.calls) > 3 for program in programs] == ([False] * 4 + [True]) * 2
    wide = programs[4]
    assert [call.call.after for call in wide.calls] == (
        [()] * 8 + [tuple(range(8))] * 8 + [tuple(range(8, 16))] * 8
    )
    assert all(
        call.call.needs(n) == ((n - 1,) if n else ()) for n, call in enumerate(programs[0].calls)
    )


@pytest.mark.engine
def test_orders_differ_with_few_slots():
    pytest.importorskip("vllm")
    from weft_bench.cli.simulator import TruthOptions
    from weft_bench.costs.model import CostModel
    from weft_bench.costs.presets import EngineShape
    from weft_bench.truth.command import _scenes, _simulate

    cost = CostModel(0.002, prefill_token_s=5e-5, decode_sequence_s=2e-4)
    options = TruthOptions()
    shape = EngineShape(cost, options.slots, 2048, options.kv_blocks, 32, 65_536, 4096)
    _, compared = _scenes(options)
    fcfs, mlfq, plas = (_simulate(name, shape, compared) for name in ("fcfs", "mlfq", "plas"))
    assert fcfs > 1.1 * mlfq > 1.1 * 1.1 * plas


def test_the_model_is_larger_and_has_no_weights(tmp_path):
    demo = tmp_path / "demo"
    demo.mkdir()
    (demo / "config.json").write_text(json.dumps({"hidden_size": 64, "vocab_size": 6144}))
    (demo / "tokenizer.json").write_text("{}")
    (demo / "model.safetensors").write_bytes(b"0")
    made = model(demo, tmp_path)
    assert sorted(path.name for path in made.iterdir()) == ["config.json", "tokenizer.json"]
    config = json.loads((made / "config.json").read_text())
    assert (config["hidden_size"], config["vocab_size"]) == (256, 6144)
