"""The engine settings and errors of the overlap bench."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.cli.parts import OverlapOptions
from weft_bench.overlap.command import run, setup
from weft_bench.stack.local import configuration


def test_engines_order_requests_by_arrival_and_hold_twelve_median_prompts():
    line, variables = setup(OverlapOptions(), {})
    assert line[:5] == ["--replicas", "1", "--policy", "program_fifo", "--"]
    # (32,768 - 5,120) / 3 tokens per prompt, 32 per block.
    assert line[5:] == ["--max-model-len", "32768", "--num-gpu-blocks-override", "3456"]
    assert json.loads(variables["WEFT_ENGINE_SETTINGS"]) == {"tags": True}
    line, _ = setup(OverlapOptions(replicas=2, max_model_len=8192, kv_blocks=99), {})
    assert line[1] == "2"
    assert line[-3:] == ["8192", "--num-gpu-blocks-override", "99"]


def test_given_settings_are_kept_and_tags_are_added():
    given = {"WEFT_ENGINE_SETTINGS": '{"pin_share": 0.1, "tags": false}'}
    _, variables = setup(OverlapOptions(), given)
    assert json.loads(variables["WEFT_ENGINE_SETTINGS"]) == {"pin_share": 0.1, "tags": True}


@pytest.mark.parametrize("text", ["{", "3", "[1]"])
def test_settings_must_be_an_object(text, monkeypatch, capsys):
    monkeypatch.setenv("WEFT_ENGINE_SETTINGS", text)
    assert run(OverlapOptions()) == 2
    assert "WEFT_ENGINE_SETTINGS" in capsys.readouterr().err


def test_unused_options_are_not_recorded():
    own = configuration(OverlapOptions())
    theirs = configuration(OverlapOptions(base_url="http://h"))
    assert "base_url" not in own
    assert not {"replicas", "max_model_len", "kv_blocks"} & theirs.keys()
    assert own.keys() | theirs.keys() == {f.name for f in fields(OverlapOptions)}


def test_missing_server_is_reported(capsys):
    assert run(OverlapOptions(base_url="http://127.0.0.1:9")) == 2
    assert "weft bench overlap" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--base-url", "http://h", "--max-model-len", "16384"],
        ["--quick", "--seeds", "2"],
        ["--changed", "1.5"],
        ["--max-model-len", "4096"],
    ],
)
def test_options_that_would_be_ignored_or_are_wrong_are_refused(options):
    assert CliRunner().invoke(cli.bench, ["overlap", *options]).exit_code == 2
