"""Models with a real shape only."""

from __future__ import annotations

import json

import pytest
from weft_bench.agents.shapes import SHAPES, config, write
from weft_bench.workloads.parts import token_ids
from weft_bench.workloads.schema import Part
from weft_engine.emulated.presets import MODELS


def test_shapes_match_their_models():
    # The model cards: 8.03 and 1.24 billion.
    assert SHAPES["8b"].parameters == pytest.approx(8.03e9, rel=0.001)
    assert SHAPES["1b"].parameters == pytest.approx(1.24e9, rel=0.01)
    # The simulator's preset of the same model has this value.
    assert SHAPES["8b"].token_bytes == MODELS["8b"].token_bytes
    assert SHAPES["8b"].weight_bytes == pytest.approx(16.06e9, rel=0.001)


def test_folder_has_the_engines_files_and_no_weights(tmp_path):
    pytest.importorskip("tokenizers")
    folder = tmp_path / "model"
    write(folder, "1b", 2048)
    files = {file.name for file in folder.iterdir()}
    assert files == {
        "chat_template.jinja", "config.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    written = json.loads((folder / "config.json").read_text())
    assert written == config(SHAPES["1b"], 2048)
    assert written["architectures"] == ["LlamaForCausalLM"]


@pytest.mark.parametrize("name", SHAPES)
def test_prompts_are_in_every_vocabulary(name):
    assert max(token_ids((Part("p", 5000),))) < SHAPES[name].vocabulary
