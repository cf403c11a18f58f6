"""Start of the engines of a bench."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from weft_bench.replay.command import (
    OF_OWN_ENGINES,
    ReplayOptions,
    run,
    setup,
    variant,
)
from weft_bench.stack.local import configuration


def variables(options, given=()):
    found = setup(options, dict(given))[1]
    return [json.loads(found[name]) for name in ("WEFT_ORDER_OPTIONS", "WEFT_ENGINE_SETTINGS")]


def test_only_engine_options_pass_to_vllm():
    line, _ = setup(ReplayOptions(replicas=3, slots=2), {})
    assert line == ["--replicas", "3", "--", "--max-num-seqs", "2"]
    line, _ = setup(ReplayOptions(kv_blocks=64, max_model_len=2048), {})
    assert line[-4:] == ["--num-gpu-blocks-override", "64", "--max-model-len", "2048"]


def test_only_srpt_enables_experiments():
    assert variables(ReplayOptions())[0] == {"first_quantum_s": 0.1}
    assert variables(ReplayOptions(policies=("fcfs", "srpt")))[0]["experiments"] is True


def test_cache_settings_are_added_to_given_settings():
    given = {"WEFT_ENGINE_SETTINGS": '{"pin_share": 0.1, "tags": true}'}
    options = ReplayOptions(tags=(False,), swap_gib=0.5)
    assert variables(options, given)[1] == {"pin_share": 0.1, "tags": False, "swap_gib": 0.5}
    assert variables(ReplayOptions())[1] == {"tags": True}
    assert variables(ReplayOptions(tags=(False, True)))[1] == {"tags": True}


def test_plays_with_different_tags_have_different_names():
    assert variant("plas", True, (True,)) == "plas"
    names = [variant("plas", tagged, (False, True)) for tagged in (False, True)]
    assert names == ["plas plain", "plas tags"]


@pytest.mark.parametrize("text", ["{", "3", "[1]"])
def test_settings_must_be_an_object(text):
    with pytest.raises(ValueError, match="WEFT_ENGINE_SETTINGS"):
        setup(ReplayOptions(), {"WEFT_ENGINE_SETTINGS": text})


def test_unused_options_are_not_recorded():
    own = configuration(ReplayOptions(), OF_OWN_ENGINES)
    assert own["slots"] == 4
    assert "base_url" not in own
    theirs = configuration(ReplayOptions(base_url="http://h"), OF_OWN_ENGINES)
    assert theirs["base_url"] == "http://h"
    assert not {"replicas", "slots", "kv_blocks", "swap_gib"} & theirs.keys()
    assert own.keys() | theirs.keys() == {f.name for f in fields(ReplayOptions)}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no programs"),
        ([{"id": "p", "calls": []}], "has no arrival times"),
    ],
)
def test_trace_without_programs_or_arrivals_starts_nothing(tmp_path, capsys, lines, message):
    path = tmp_path / "w.jsonl"
    header = {"weft_workload": 1, "name": "w"}
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)))
    assert run(ReplayOptions(trace=str(path), arrivals="recorded")) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert "starting" not in output.out
