"""Weights of the demo model: random, except for a bias that ends its answers.

Random logits never close a JSON string, because thousands of words compete with one quote. One
dimension of the hidden state is therefore constant: its embedding is 1 and no layer writes to it.
The head's column for that dimension acts as a bias. Words keep random logits. A quote, JSON's
closing brackets and the end of the answer get a bias with which they win from time to time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[np.float32]

# Standard deviation of a word's logit. The highest of the 1,900 words has a mean of 10 and a
# deviation of 0.9. A token with bias 8 wins about one time in eight, because the bias varies too.
_SPREAD: Final = 3.0
# If a grammar allows several of these tokens, the one with the highest bias wins.
_RAISED: Final = {
    '"': 8.0,
    '"}': 5.0,
    '"]': 5.0,
    "}": 3.0,
    "]": 3.0,
    ",": 1.0,
    ":": 1.0,
}
# Ends of a sentence and of an answer: random like words, but more frequent.
_END_OF_SENTENCE: Final = 3.0
_END_OF_ANSWER: Final = 1.5
# Numbers, opening brackets, bytes, parts of words: only if a grammar allows no other token.
_OTHERS: Final = -12.0
# White space and signs between JSON values: never, if the grammar allows any other token.
_NEVER: Final = -30.0
_BETWEEN: Final = frozenset("ĠĊĉč-")
# Standard deviation of the hidden state, measured on text; the final norm divides by it.
_DEVIATION: Final = 2.75
# Sharp attention with more weight than the last token. Without it greedy answers repeat in loops.
_SHARP: Final = 4.0
_CONTEXT: Final = 2.0
# Factor of the bias after a token with a raised bias, so that no quote follows a quote.
_AFTER_RAISED: Final = 0.5


def _bias(
    vocabulary: Mapping[str, int], words: Collection[str], end_of_answer: int
) -> tuple[_Array, NDArray[np.bool_]]:
    """Return the bias of each token, and whether its logit is random as well."""
    bias = np.full(len(vocabulary), _OTHERS, dtype=np.float32)
    random = np.zeros(len(vocabulary), dtype=np.bool_)
    for text, token in vocabulary.items():
        # Byte-level BPE writes a leading space as this character.
        if text.startswith("Ġ") and text[1:].lower() in words:
            bias[token], random[token] = 0.0, True
        elif text.isdecimal():
            random[token] = True
        elif set(text) <= _BETWEEN:
            bias[token] = _NEVER
        elif text == ".":
            bias[token], random[token] = _END_OF_SENTENCE, True
        elif text in _RAISED:
            bias[token] = _RAISED[text]
    bias[end_of_answer], random[end_of_answer] = _END_OF_ANSWER, True
    return bias, random


def make(
    config: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    words: Collection[str],
    end_of_answer: int,
    seed: int,
) -> dict[str, _Array]:
    """Return the float32 tensors of a Qwen3 model of this `config`, under their published names.

    vocabulary: byte-level token text to id, dense. words: the words that it writes, in lower case.
    Equal arguments give equal bytes: the function only draws, copies and multiplies by constants,
    and nothing depends on a BLAS.
    """
    source = np.random.RandomState(seed)  # numpy guarantees its stream, unlike that of Generator.
    hidden, inner, width = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries = config["num_attention_heads"] * width
    keys = config["num_key_value_heads"] * width

    def matrix(rows: int, columns: int, scale: float = 1.0) -> _Array:
        """Return a matrix that maps vectors of unit variance to variance `scale` squared."""
        values = source.standard_normal((rows, columns)) * (scale / columns**0.5)
        result: _Array = values.astype(np.float32)
        return result

    def ones(size: int) -> _Array:
        return np.ones(size, dtype=np.float32)

    size = len(vocabulary)
    embedding = matrix(size, hidden, scale=hidden**0.5)
    bias, random = _bias(vocabulary, words, end_of_answer)
    embedding[:, 0] = np.where(bias > 0, _AFTER_RAISED, 1.0)
    head = matrix(size, hidden, scale=_SPREAD)
    head[~random] = 0.0
    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": ones(hidden)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        out, down = matrix(hidden, queries, scale=_CONTEXT), matrix(hidden, inner)
        out[0] = down[0] = 0.0
        tensors |= {
            f"{at}input_layernorm.weight": ones(hidden),
            f"{at}post_attention_layernorm.weight": ones(hidden),
            f"{at}self_attn.q_proj.weight": matrix(queries, hidden),
            f"{at}self_attn.k_proj.weight": matrix(keys, hidden),
            f"{at}self_attn.v_proj.weight": matrix(keys, hidden),
            f"{at}self_attn.o_proj.weight": out,
            f"{at}self_attn.q_norm.weight": ones(width) * np.float32(_SHARP),
            f"{at}self_attn.k_norm.weight": ones(width),
            f"{at}mlp.gate_proj.weight": matrix(inner, hidden),
            f"{at}mlp.up_proj.weight": matrix(inner, hidden),
            f"{at}mlp.down_proj.weight": down,
        }
    head[:, 0] = bias * np.float32(_DEVIATION)
    return tensors | {"lm_head.weight": head}
