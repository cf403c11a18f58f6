"""The tokens of an answer."""

from __future__ import annotations

from typing import NamedTuple


class Usage(NamedTuple):
    """The tokens of an answer, with the names of an engine's report. cached_tokens: the part of the
    prompt that was in the KV cache. reasoning_tokens: the part of the output that is reasoning.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
