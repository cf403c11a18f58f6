"""The demo model's weights."""

from __future__ import annotations

import numpy as np
from weft_deploy.local.demo import weights
from weft_deploy.local.demo_model import CONFIG

TEXTS = ['"', "}", ",", "12", "Ġ", "Ġyes", "ĠNo", "Ġxyz", "yes", "<|im_end|>"]
VOCABULARY = {text: token for token, text in enumerate(TEXTS)}
END = VOCABULARY["<|im_end|>"]


def _make(seed: int = 1):
    return weights.make(CONFIG, VOCABULARY, {"yes", "no"}, END, seed)


def test_weights_depend_on_the_seed():
    first, again, other = _make(), _make(), _make(2)
    assert {name: value.tobytes() for name, value in first.items()} == {
        name: value.tobytes() for name, value in again.items()
    }
    assert not np.array_equal(first["lm_head.weight"], other["lm_head.weight"])


def test_shapes_are_those_of_the_config():
    tensors = _make()
    hidden, inner, width = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    layer = "model.layers.1."
    assert tensors["lm_head.weight"].shape == (len(TEXTS), hidden)
    assert tensors[f"{layer}mlp.down_proj.weight"].shape == (hidden, inner)
    assert tensors[f"{layer}self_attn.k_norm.weight"].shape == (width,)
    assert tensors[f"{layer}self_attn.v_proj.weight"].shape == (
        CONFIG["num_key_value_heads"] * width,
        hidden,
    )
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}


def test_nothing_writes_to_the_dimension_of_the_bias():
    tensors = _make()
    for layer in range(CONFIG["num_hidden_layers"]):
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            assert not tensors[f"model.layers.{layer}.{name}.weight"][0].any()
    assert (tensors["model.embed_tokens.weight"][:, 0] > 0).all()


def test_the_bias_is_highest_for_a_quote_and_then_for_words():
    bias = _make()["lm_head.weight"][:, 0]
    order = ['"', "}", ",", "Ġyes", "12", "Ġ"]
    assert [bias[VOCABULARY[text]] for text in order] == sorted(
        (bias[VOCABULARY[text]] for text in order), reverse=True
    )
    assert bias[END] > bias[VOCABULARY["Ġyes"]]


def test_only_words_numbers_and_ends_are_drawn():
    drawn = _make()["lm_head.weight"][:, 1:].any(axis=1)
    assert [text for text in TEXTS if drawn[VOCABULARY[text]]] == [
        "12",
        "Ġyes",
        "ĠNo",
        "<|im_end|>",
    ]
