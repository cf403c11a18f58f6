"""The demo model has the same bytes in each build, and is complete or absent."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

from transformers import AutoTokenizer
from weft_deploy.local.demo.tokenizer import END_OF_MESSAGE
from weft_deploy.local.demo_model import ensure_demo_model, version


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return ensure_demo_model(tmp_path_factory.mktemp("model") / "demo")


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def test_two_builds_have_the_same_bytes(folder, tmp_path):
    again = ensure_demo_model(tmp_path / "again")
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (again / name).read_bytes(), name
    assert version() == version()


def test_an_existing_model_is_not_built_again(folder):
    before = (folder / "config.json").stat().st_mtime_ns
    assert ensure_demo_model(folder) == folder
    assert (folder / "config.json").stat().st_mtime_ns == before


def test_an_interrupted_build_leaves_nothing(tmp_path, monkeypatch):
    import safetensors.numpy

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(safetensors.numpy, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        ensure_demo_model(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["Hello!", "ü 日本 🙂", '{"a": [1, 2]}', "\tx = 1\n\n", "\x00"])
def test_any_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_vocabulary_and_special_tokens_fit_the_config(folder, tokenizer):
    config = json.loads((folder / "config.json").read_text())
    assert config["vocab_size"] == len(tokenizer)
    assert tokenizer.convert_tokens_to_ids(END_OF_MESSAGE) == config["eos_token_id"]
    assert len(tokenizer("<|im_start|>").input_ids) == 1
    assert len(tokenizer("<tool_call>").input_ids) == 1


def test_the_chat_template_renders_tools_calls_and_results(tokenizer):
    call = {"function": {"name": "get_time", "arguments": {"zone": "UTC"}}}
    text = tokenizer.apply_chat_template(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What time is it?"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "12:00"},
        ],
        tools=[{"type": "function", "function": {"name": "get_time"}}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert text.startswith("<|im_start|>system\nBe brief.\n")
    assert '<tool_call>\n{"name": "get_time", "arguments": {"zone": "UTC"}}\n</tool_call>' in text
    assert "<tool_response>\n12:00\n</tool_response>" in text
    assert text.endswith("<|im_start|>assistant\n")


def test_a_longer_conversation_extends_the_shorter_ones_text(tokenizer):
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]

    def render(count):
        return tokenizer.apply_chat_template(messages[:count], tokenize=False)

    assert render(3).startswith(render(2))
    assert render(4).startswith(render(3))


@pytest.mark.engine
def test_the_engine_detects_that_content_may_be_a_list(folder):
    """vLLM detects this from the template's syntax tree. Plain text content would lose parts."""
    hf = pytest.importorskip("vllm.renderers.hf")
    template = (folder / "chat_template.jinja").read_text()
    assert hf._detect_content_format(template, default="string") == "openai"
