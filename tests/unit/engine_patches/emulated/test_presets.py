"""Cost models from specifications."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft_engine.emulated.presets import GPUS, MODELS, PRESETS, derive, preset
from weft_engine.step_cost import attention_pairs


def test_every_model_has_a_preset_for_every_gpu():
    derived = {f"{m}-{g}" for m in ("8b", "14b", "32b", "70b") for g in GPUS}
    assert set(PRESETS) == derived | {"hexgen-a100", "hexgen-a6000", "hexgen-l40"}
    assert {"a100", "h100", "h200", "l40", "a6000"} == set(GPUS)


def test_a_14b_model_on_an_a100_has_room_for_a_dozen_of_the_production_traces_prompts():
    assert 12 < preset("14b-a100").kv_blocks * 16 / 20_000 < 14


def test_a_32b_model_runs_on_two_gpus():
    shape = preset("32b-h200")
    # 64 layers, 8 KV heads of 128 numbers: 256 KiB per token.
    assert shape.block_bytes == 16 * 262_144
    assert shape.cost.weights_s == pytest.approx(65.6e9 / (2 * 0.75 * 4.8e12))
    assert shape.kv_blocks == int(2 * (0.92 * 141e9 - 32.8e9 - 2e9) / shape.block_bytes)
    assert preset("32b-a6000").kv_blocks > 1000
    # 64 heads of 128 numbers are wider than the hidden size.
    assert shape.cost.prefill_pair_s == pytest.approx(4 * 64 * 8192 / (2 * 0.5 * 989.5e12))


def test_an_8b_model_on_an_a100_by_hand():
    shape = preset("8b-a100")
    # 16.06 GB at three quarters of 2,039 GB/s; 16.06 GFLOP at half of 312 TFLOP/s.
    assert shape.cost.weights_s == pytest.approx(16.06 / (2039 * 0.75))
    assert shape.cost.prefill_token_s == pytest.approx(16.06e9 / 156e12)
    # 32 layers of 32 heads of 128 numbers, two products of two operations each.
    assert shape.cost.prefill_pair_s == pytest.approx(4 * 32 * 32 * 128 / 156e12)
    # 128 KiB per token.
    assert shape.block_bytes == 16 * 131_072
    assert shape.cost.context_token_s == pytest.approx(131_072 / (2.039e12 * 0.75))
    assert shape.kv_blocks == int((73.6e9 - 16.06e9 - 2e9) / shape.block_bytes)
    assert (shape.slots, shape.step_tokens) == (256, 2048)


@pytest.mark.parametrize(
    ("gpu", "gigabytes", "bandwidth", "arithmetic", "peers", "host", "slots", "step_tokens"),
    [
        ("a100", 80, 2.039e12, 312e12, 300e9, 32e9, 256, 2048),
        ("h100", 80, 3.35e12, 989e12, 450e9, 64e9, 1024, 8192),
        ("h200", 141, 4.8e12, 989.5e12, 450e9, 64e9, 1024, 8192),
        ("l40", 48, 0.864e12, 181.05e12, 32e9, 32e9, 256, 2048),
        ("a6000", 48, 0.768e12, 154.85e12, 32e9, 32e9, 256, 2048),
    ],
)
def test_every_gpu_by_its_data_sheet(
    gpu, gigabytes, bandwidth, arithmetic, peers, host, slots, step_tokens
):
    one, four = preset(f"8b-{gpu}"), preset(f"70b-{gpu}")
    assert (one.slots, one.step_tokens) == (four.slots, four.step_tokens) == (slots, step_tokens)
    assert one.cost.weights_s == pytest.approx(16.06e9 / (0.75 * bandwidth))
    assert one.cost.prefill_token_s == pytest.approx(16.06e9 / (0.5 * arithmetic))
    assert one.cost.swapped_block_s == pytest.approx(2**21 / host)
    assert one.kv_blocks == int((0.92 * gigabytes * 1e9 - 16.06e9 - 2e9) / 2**21)
    # 70.6 billion parameters on four GPUs; 80 layers exchange 8,192 numbers twice.
    communication = 2 * 80 * 2 * 3 / 4 * 8192 * 2 / peers
    assert four.cost.weights_s == pytest.approx(141.2e9 / (4 * 0.75 * bandwidth))
    assert four.cost.prefill_token_s == pytest.approx(
        141.2e9 / (4 * 0.5 * arithmetic) + communication
    )
    assert four.cost.prefill_pair_s == pytest.approx(4 * 80 * 8192 / (4 * 0.5 * arithmetic))
    assert four.kv_blocks == int(4 * (0.92 * gigabytes * 1e9 - 35.3e9 - 2e9) / (5 * 2**20))


@pytest.mark.parametrize("model", MODELS)
def test_faster_gpu_has_lower_costs_throughout(model):
    fast, slow = preset(f"{model}-h100").cost, preset(f"{model}-a6000").cost
    for name in ("weights_s", "prefill_token_s", "prefill_pair_s", "context_token_s"):
        assert getattr(fast, name) < getattr(slow, name)


@pytest.mark.parametrize(
    ("name", "prompt_s", "answer_s", "room"),
    [
        ("hexgen-a100", 330e-6, 21.2e-3, 443_000),
        ("hexgen-a6000", 966e-6, 33.8e-3, 84_000),
        ("hexgen-l40", 576e-6, 38.2e-3, 84_000),
    ],
)
def test_instances_of_hexgen_flow_take_the_times_of_their_tables(name, prompt_s, answer_s, room):
    shape = preset(name)
    # A chunk of a prompt, and one token of one answer at the mean context.
    chunk_s = shape.cost.step(2048, 0, 0, attention_pairs(2048, 0)) - shape.cost.step_s
    assert chunk_s / 2048 == pytest.approx(prompt_s, rel=1e-4)
    assert shape.cost.step(0, 1, 8_000) == pytest.approx(answer_s, rel=1e-4)
    assert 0 <= room - shape.kv_blocks * shape.block_tokens < shape.block_tokens


def test_several_gpus_pay_for_communication():
    one = derive(replace(MODELS["8b"], gpus=1), GPUS["l40"]).cost
    four = derive(replace(MODELS["8b"], gpus=4), GPUS["l40"]).cost
    assert four.weights_s == pytest.approx(one.weights_s / 4)
    assert four.prefill_token_s > one.prefill_token_s / 4
    assert four.step_s > one.step_s


def test_unknown_or_too_large_models_are_refused():
    with pytest.raises(ValueError, match="8b-a100"):
        preset("8b-b200")
    with pytest.raises(ValueError, match="no room"):
        derive(replace(MODELS["70b"], gpus=1), GPUS["l40"])
