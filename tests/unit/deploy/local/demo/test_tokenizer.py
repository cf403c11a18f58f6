"""The demo tokenizer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_deploy.local.demo import corpus, tokenizer
from weft_deploy.local.demo_model import VOCABULARY


@pytest.fixture(scope="module")
def trained():
    return tokenizer.train(corpus.pieces(), VOCABULARY)


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_decoding_returns_the_encoded_text(trained, text):
    assert trained.decode(trained.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("token", [*tokenizer.SPECIAL, *tokenizer.MARKUP])
def test_each_markup_tag_is_one_token(trained, token):
    assert trained.encode(f"a{token}b").tokens == ["a", token, "b"]


def test_decoding_hides_special_tokens_only(trained):
    ids = trained.encode("<|im_start|><tool_call><|im_end|>").ids
    assert trained.decode(ids) == "<tool_call>"


# Text of the kinds that an engine gets. The corpus does not contain it.
UNSEEN = {
    "dialogue": (
        "Good morning, my luggage did not arrive with flight 418 from Chicago. Could you find out "
        "where it is? I have already called twice, and nobody was able to help me. Of course, I "
        "will check that for you now. What is your booking number?",
        3.6,
    ),
    "tool": (
        '{"name": "cancel_order", "arguments": {"order_id": "W118", "reason": "no longer needed"}}',
        2.8,
    ),
    "code": (
        "def mean(values: list[float]) -> float:\n    if not values:\n"
        '        raise ValueError("no values")\n    return sum(values) / len(values)\n',
        3.0,
    ),
}


@pytest.mark.parametrize("kind", UNSEEN)
def test_tokens_of_unseen_text_have_several_bytes(trained, kind):
    text, least = UNSEEN[kind]
    assert len(text.encode()) / len(trained.encode(text).ids) >= least


def test_a_text_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="6144 wanted"):
        tokenizer.train(["too small"], 6144)


def test_the_files_name_the_end_of_a_message(trained, tmp_path):
    tokenizer.save(trained, tmp_path, "{{ messages }}", 4096)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["eos_token"] == tokenizer.END_OF_MESSAGE
    assert config["model_max_length"] == 4096
    assert (tmp_path / "chat_template.jinja").read_text() == "{{ messages }}"
