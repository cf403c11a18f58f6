"""A grammar that a test can check: the n-th token of the answer is FIRST + n, and no other."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputOptions,
)

FIRST = 100
_WORD = 32


class Counting(StructuredOutputGrammar):
    """State: how many tokens were accepted."""

    def __init__(self) -> None:
        self.accepted = 0

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        wanted = [FIRST + self.accepted + n for n in range(len(tokens))]
        self.accepted += len(tokens) if tokens == wanted else 0
        return tokens == wanted

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        good = 0
        while good < len(tokens) and tokens[good] == FIRST + self.accepted + good:
            good += 1
        return tokens[:good]

    def rollback(self, num_tokens: int) -> None:
        self.accepted -= num_tokens

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        bitmask[batch_index].zero_()
        token = FIRST + self.accepted
        bit = torch.tensor(1, dtype=torch.int32) << (token % _WORD)
        bitmask[batch_index, token // _WORD] = bit

    def is_terminated(self) -> bool:
        return False

    def reset(self) -> None:
        self.accepted = 0


class CountingBackend(StructuredOutputBackend):
    """Makes them, for a vocabulary of `vocab_size` tokens."""

    def compile_grammar(
        self,
        request_type: StructuredOutputOptions,
        grammar_spec: str,
        stop_token_ids: set[int] | None = None,
    ) -> StructuredOutputGrammar:
        return Counting()

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        return torch.zeros(max_num_seqs, self.vocab_size // _WORD, dtype=torch.int32)

    def destroy(self) -> None:
        return


def sampled(grammar_output: Any) -> dict[str, int]:
    """The first token that each request's row of the bitmask allows."""
    if grammar_output is None:
        return {}
    rows = torch.from_numpy(grammar_output.grammar_bitmask)
    bits = (rows.unsqueeze(-1) >> torch.arange(_WORD)) & 1
    first = bits.flatten(1).argmax(dim=1).tolist()
    return dict(zip(grammar_output.structured_output_request_ids, first, strict=True))
