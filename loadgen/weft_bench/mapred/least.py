"""Least prompt tokens that engines compute: each block of a prompt once.

Engines reuse whole blocks of the prefix of a prompt, and they always compute its last token (vLLM:
`kv_cache_manager.get_computed_blocks`). Prompts that contain answers of other calls may reuse more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import httpx

BLOCK_TOKENS: Final = 16
# System prompt and user message.
Prompt = tuple[str, str]


def computed_once(prompts: Iterable[Sequence[int]], block: int = BLOCK_TOKENS) -> int:
    """Return the tokens of prompts that one cache without limit does not have, in this order.

    prompts: token ids. block: tokens of a block of the cache. Prompts that occur twice count once,
    because equal calls can be merged. The order makes no difference unless a prompt is the
    beginning of another one.
    """
    known: set[tuple[int, ...]] = set()
    computed = 0
    for prompt in dict.fromkeys(map(tuple, prompts)):
        whole = [prompt[:end] for end in range(block, len(prompt) + 1, block)]
        cached = 0
        for prefix in whole:
            if prefix not in known or len(prefix) == len(prompt):
                break
            cached = len(prefix)
        known.update(whole)
        computed += len(prompt) - cached
    return computed


def tokens_of(engine: str, model: str, prompts: Iterable[Prompt]) -> list[list[int]]:
    """Return the token ids of prompts, as an engine counts them. engine: its base URL. Raises
    httpx.HTTPError.
    """
    found = []
    with httpx.Client(base_url=engine, timeout=60, trust_env=False) as client:
        for system, user in prompts:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
            answer = client.post("/tokenize", json={"model": model, "messages": messages})
            found.append(answer.raise_for_status().json()["tokens"])
    return found
