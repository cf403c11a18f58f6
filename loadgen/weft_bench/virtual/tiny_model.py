"""A model that exists only as a configuration: enough for vLLM to build its scheduler around."""

from __future__ import annotations

from typing import Any, Final

TINY_MODEL: Final[dict[str, Any]] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "torch_dtype": "float32",
}
