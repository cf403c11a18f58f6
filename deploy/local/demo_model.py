"""The demo model: Qwen3-shaped, tiny, random. Built once, the same bytes for the same seed.

It knows nothing; it is real enough for the engine to do everything that it does with a large
model: chat templates, tools, structured output, prefix caching, preemption. Run
`python -m deploy.local.demo_model` to build it and print its folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

SERVED_NAME: Final = "weft-demo"
SEED: Final = 20_240_520
VOCABULARY: Final = 2048
SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

CONFIG: Final[dict[str, Any]] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}

# Logits of random weights have a standard deviation near 1 and 2,048 tokens compete. What ends a
# string, an object or an answer is raised by about three deviations, so that structured output
# comes to an end and plain answers have a length.
_RAISED: Final = {'"': 3.4, '"}': 3.4, '",': 3.2, "}": 3.0, "]": 3.0, ",": 2.0, ":": 2.0, "}}": 3.0}
_RAISED_END: Final = 2.4

_HERE: Final = Path(__file__).parent / "demo"


def version() -> str:
    """Changes when anything that the model is made of changes."""
    digest = sha256(json.dumps([CONFIG, SEED, VOCABULARY, SPECIAL, MARKERS, _RAISED]).encode())
    for name in ("corpus.txt", "chat_template.jinja"):
        digest.update((_HERE / name).read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:12]


def default_folder() -> Path:
    """Where the model is kept: in the checkout, or in the user's cache outside of one."""
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        return root / ".weft" / "demo-model" / version()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "weft" / "demo-model" / version()


def ensure_demo_model(folder: Path | None = None) -> Path:
    """Build the model if it is not there. Returns its folder, complete or not at all."""
    target = folder or default_folder()
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
    try:
        vocabulary = _write_tokenizer(work)
        _write_weights(work, vocabulary)
        # Others than the builder may serve it: a container's user, say.
        work.chmod(0o755)
        for file in work.iterdir():
            file.chmod(0o644)
        # Last, since its presence means that the model is complete.
        (work / "config.json").write_text(_json({**CONFIG, "vocab_size": len(vocabulary)}))
        try:
            work.rename(target)
        except OSError:
            # Somebody else has built it meanwhile.
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _write_tokenizer(folder: Path) -> dict[str, int]:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKERS),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    lines = (_HERE / "corpus.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    tokenizer.train_from_iterator(lines, trainer)
    # Ordinary tokens, not special ones: the engine's tool parser reads them in the text.
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in MARKERS])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        _json(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": SPECIAL[2],
                "pad_token": SPECIAL[0],
                "model_max_length": CONFIG["max_position_embeddings"],
                "clean_up_tokenization_spaces": False,
                "chat_template": (_HERE / "chat_template.jinja").read_text(encoding="utf-8"),
            }
        )
    )
    (folder / "generation_config.json").write_text(
        _json({"eos_token_id": [2, 0], "temperature": 1.0, "top_k": 20, "do_sample": True})
    )
    return dict(tokenizer.get_vocab(with_added_tokens=True))


def _write_weights(folder: Path, vocabulary: dict[str, int]) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    random = np.random.Generator(np.random.PCG64(SEED))
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    heads, kv_heads, width = (
        CONFIG["num_attention_heads"],
        CONFIG["num_key_value_heads"],
        CONFIG["head_dim"],
    )

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Any:
        values = random.standard_normal((rows, columns), dtype=np.float32)
        return values * np.float32(scale / columns**0.5)

    size = len(vocabulary)
    embedding = matrix(size, hidden, scale=hidden**0.5)
    # The first dimension is the same everywhere and nothing writes to it, so that the head can
    # raise a token whatever the context is.
    embedding[:, 0] = 1.0
    head = matrix(size, hidden)
    head[:, 0] = 0.0
    for text, logit in _RAISED.items():
        if text in vocabulary:
            head[vocabulary[text], 0] = logit
    head[vocabulary[SPECIAL[2]], 0] = _RAISED_END
    for name in (SPECIAL[0], SPECIAL[1], *MARKERS):
        head[vocabulary[name], 0] = -8.0

    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    ones = np.ones
    tensors["model.norm.weight"] = ones(hidden, dtype=np.float32)
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        out = matrix(hidden, heads * width, scale=0.5)
        down = matrix(hidden, inner, scale=0.5)
        out[0, :] = 0.0
        down[0, :] = 0.0
        tensors |= {
            f"{at}input_layernorm.weight": ones(hidden, dtype=np.float32),
            f"{at}post_attention_layernorm.weight": ones(hidden, dtype=np.float32),
            f"{at}self_attn.q_proj.weight": matrix(heads * width, hidden, scale=2.0),
            f"{at}self_attn.k_proj.weight": matrix(kv_heads * width, hidden, scale=2.0),
            f"{at}self_attn.v_proj.weight": matrix(kv_heads * width, hidden, scale=2.0),
            f"{at}self_attn.o_proj.weight": out,
            f"{at}self_attn.q_norm.weight": ones(width, dtype=np.float32),
            f"{at}self_attn.k_norm.weight": ones(width, dtype=np.float32),
            f"{at}mlp.gate_proj.weight": matrix(inner, hidden),
            f"{at}mlp.up_proj.weight": matrix(inner, hidden),
            f"{at}mlp.down_proj.weight": down,
        }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Build the model and print its folder."""
    parser = argparse.ArgumentParser(description="Build the demo model and print its folder.")
    parser.add_argument("--out", type=Path, default=None, help="folder to build it in")
    print(ensure_demo_model(parser.parse_args().out))


if __name__ == "__main__":
    main()
