"""The flags that `weft replica --emulated` gives to vLLM."""

from __future__ import annotations

import json

import pytest
from weft_engine.emulated.launch import arguments, check, longest, run, served_name
from weft_engine.emulated.presets import preset


def line(scheduler="weft", extra=(), name="8b-a100"):
    settings = check(name, 2.0, scheduler)
    return arguments("m", "h", 1, "plas", "ipc://x", settings, scheduler, extra)


def last(flags, option):
    return flags[len(flags) - flags[::-1].index(option)]


@pytest.mark.parametrize("scheduler", ["weft", "stock"])
def test_sizes_come_from_the_preset(scheduler):
    flags = line(scheduler, name="8b-h100")
    assert last(flags, "--worker-cls").endswith("EmulatedWorker")
    assert last(flags, "--max-num-seqs") == "1024"
    assert last(flags, "--max-num-batched-tokens") == "8192"
    assert last(flags, "--block-size") == "16"
    assert last(flags, "--max-model-len") == "131072"
    emulated = json.loads(last(flags, "--additional-config"))["emulated"]
    assert (emulated["name"], emulated["dilate"]) == ("8b-h100", 2.0)


def test_stock_vllm_gets_nothing_of_the_plugin():
    text = " ".join(line("stock"))
    assert "weft_engine" not in text.replace("weft_engine.emulated.worker", "")
    assert "--scheduler-cls" not in text
    assert set(json.loads(last(line("stock"), "--additional-config"))) == {"emulated"}


def test_the_plugin_gets_its_settings_beside_those_of_the_device():
    config = json.loads(last(line(), "--additional-config"))
    assert config["weft"] == {"policy": "plas", "channel": "ipc://x"}
    assert last(line(), "--scheduler-cls").endswith("EmulatedScheduler")


@pytest.mark.parametrize("scheduler", ["weft", "stock"])
def test_options_of_vllm_take_precedence(scheduler):
    assert last(line(scheduler, ["--max-num-seqs", "4"]), "--max-num-seqs") == "4"


def test_the_context_fits_into_the_kv_cache():
    shape = preset("14b-l40")
    assert longest(shape, []) == (shape.kv_blocks - 1) * 16 < 131_072
    assert longest(shape, ["--num-gpu-blocks-override", "200"]) == 199 * 16
    assert longest(shape, ["--num-gpu-blocks-override=200", "--block-size", "32"]) == 199 * 32


def test_one_model_has_one_name_on_every_gpu():
    assert served_name("8b-a100") == served_name("8b-l40") == "emulated-8b"
    assert served_name("/tmp/my-engine.json") == "emulated"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "8b-b200"}, "8b-a100"),
        ({"dilate": 0.0}, "--dilate"),
        ({"scheduler": "plain"}, "--scheduler"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(options, message, capsys):
    given = {"preset": "8b-a100", "dilate": 1.0, "scheduler": "weft"} | options
    assert run(model="", host="h", port=1, policy="fcfs", extra=(), **given) == 2
    assert message in capsys.readouterr().err
