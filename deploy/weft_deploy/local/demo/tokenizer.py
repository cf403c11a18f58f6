"""Tokenizer of the demo model: byte-level BPE with Qwen's special tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.processors import ByteLevel as ByteLevelProcessor
from tokenizers.trainers import BpeTrainer

END_OF_TEXT: Final = "<|endoftext|>"
END_OF_MESSAGE: Final = "<|im_end|>"
SPECIAL: Final = (END_OF_TEXT, "<|im_start|>", END_OF_MESSAGE)
# Each is one token, but not a special token: parsers have to see it in the text.
MARKUP: Final = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
# Contractions; words with one leading space or joint; up to three digits; punctuation with the
# quote or bracket after it (for JSON) or with line ends; line ends; spaces.
_SPLIT: Final = (
    r"'(?i:[sdmt]|ll|ve|re)|[ _./-]?\p{L}+| ?\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+(?: [\"\[{(]+|[\r\n]+)?|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(text: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train a tokenizer with exactly `vocab_size` entries, special tokens first.

    The vocabulary contains all 256 bytes, so that it can encode any input. Raises ValueError if the
    text is too small for this vocabulary size.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(_SPLIT), behavior="isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.post_processor = ByteLevelProcessor(trim_offsets=False)
    trainer = BpeTrainer(
        vocab_size=vocab_size - len(MARKUP),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    # The trainer would make them special tokens, and decoding omits special tokens.
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in MARKUP])
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"{tokenizer.get_vocab_size()} entries trained, {vocab_size} wanted")
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, chat_template: str, context: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja into `folder`."""
    tokenizer.save(str(folder / "tokenizer.json"))
    added: dict[str, Any] = {
        str(tokenizer.token_to_id(token)): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token in SPECIAL,
        }
        for token in (*SPECIAL, *MARKUP)
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": added,
        "additional_special_tokens": ["<|im_start|>", END_OF_MESSAGE],
        "bos_token": None,
        "eos_token": END_OF_MESSAGE,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": context,
        "split_special_tokens": False,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", "utf-8")
    (folder / "chat_template.jinja").write_text(chat_template, "utf-8")
