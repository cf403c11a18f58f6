"""Demo model: a tiny Qwen3 model with random weights, the same bytes for the same seed.

Its answers are random words. The engine treats it like a large model: chat templates, tools,
structured output, prefix caching and preemption all work. Run
`python -m weft_deploy.local.demo_model` to build it and print its folder.
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
VOCABULARY: Final = 6144

CONFIG: Final[dict[str, Any]] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 65_536,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}

_PARTS: Final = Path(__file__).parent / "demo"


def version() -> str:
    """Return a hash of everything that the model is built from."""
    digest = sha256(Path(__file__).read_bytes())
    for path in sorted(_PARTS.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def default_folder() -> Path:
    """Return the model's folder: in the checkout, or in the user's cache outside a checkout."""
    root = Path(__file__).resolve().parents[3]
    if (root / "pyproject.toml").is_file():
        return root / ".weft" / "demo-model" / version()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "weft" / "demo-model" / version()


def ensure_demo_model(folder: Path | None = None) -> Path:
    """Build the model if it does not exist, and return its folder.

    The folder is either complete or absent. Raises ImportError if the packages for the build are
    not installed (they come with the engine), OSError if the folder cannot be written.
    """
    target = folder or default_folder()
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
    try:
        _write(work)
        # Another user, for example a container's, may serve the model.
        work.chmod(0o755)
        for file in work.iterdir():
            file.chmod(0o644)
        try:
            work.rename(target)
        except OSError:
            # Another process has built it in the meantime.
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _write(folder: Path) -> None:
    from safetensors.numpy import save_file

    from weft_deploy.local.demo import corpus, tokenizer, weights

    trained = tokenizer.train(corpus.pieces(), VOCABULARY)
    template = (_PARTS / "chat_template.jinja").read_text("utf-8")
    tokenizer.save(trained, folder, template, CONFIG["max_position_embeddings"])
    tensors = weights.make(
        CONFIG, trained.get_vocab(), set(corpus.words()), CONFIG["eos_token_id"], SEED
    )
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    generation = {"eos_token_id": [CONFIG["eos_token_id"], CONFIG["pad_token_id"]]}
    for name, values in {"generation_config.json": generation, "config.json": CONFIG}.items():
        (folder / name).write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


def main() -> None:
    """Build the model and print its folder."""
    parser = argparse.ArgumentParser(description="Build the demo model and print its folder.")
    parser.add_argument("--out", type=Path, default=None, help="folder to build it in")
    print(ensure_demo_model(parser.parse_args().out))


if __name__ == "__main__":
    main()
