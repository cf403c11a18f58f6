"""Model folders with a shape and a tokenizer but no weights, for `--load-format dummy`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Of a number of the type bfloat16.
_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a Llama model.

    parameters: number of weights, for their memory.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    tied: bool

    @property
    def parameters(self) -> int:
        """Number of weights. Norms, about a ten-thousandth, are not counted."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate
        return self.layers * layer + (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return self.parameters * _BYTES

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's keys and values in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * _BYTES


# The `config.json` of Llama 3.1 8B and Llama 3.2 1B, with more tokens than the tokenizer.
SHAPES: Final[Mapping[str, Shape]] = {
    "8b": Shape(4096, 14_336, 32, 32, 8, 128, 128_256, False),
    "1b": Shape(2048, 8192, 16, 32, 8, 64, 128_256, True),
}


def config(shape: Shape, context: int) -> dict[str, Any]:
    """Return the model's `config.json`. context: longest call in tokens."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "torch_dtype": "bfloat16",
    }


def write(folder: Path, name: str, context: int) -> None:
    """Write config and tokenizer of the shape with this name into a new folder.

    Raises OSError, and ImportError if the tokenizer's dependencies are missing (they come with the
    engine).
    """
    from weft_deploy.local import demo
    from weft_deploy.local.demo import corpus, tokenizer
    from weft_deploy.local.demo_model import VOCABULARY

    folder.mkdir(parents=True)
    template = (Path(demo.__file__).parent / "chat_template.jinja").read_text("utf-8")
    tokenizer.save(tokenizer.train(corpus.pieces(), VOCABULARY), folder, template, context)
    text = json.dumps(config(SHAPES[name], context), indent=2)
    (folder / "config.json").write_text(text + "\n")
