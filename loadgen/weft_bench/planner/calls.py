"""LLM calls as the planner sees them: prompts of constant text and placeholders. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

Token = Hashable
# Of a token, the usual length in English.
_CHARACTERS: Final = 4


@lru_cache(maxsize=4096)
def estimate_tokens(text: str) -> tuple[Token, ...]:
    """Return a text in pieces of four characters."""
    return tuple([text[at : at + _CHARACTERS] for at in range(0, len(text), _CHARACTERS)])


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder in a prompt. key: equal for equal content in the same row. tokens: expected
    length. axes: the columns and other names over which the content varies; rows with equal values
    of them have equal content. Empty: the content is the same everywhere.
    """

    key: str
    tokens: int
    axes: tuple[str, ...] = ()


Prompt = tuple[str | Slot, ...]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """An LLM operator. prompt: rendered. answer, answer_high: expected tokens, mean and 90th
    percentile. needs: the calls whose answers it reads, directly or through tools. per_row: calls
    in one row (items, rounds). key: of the placeholder that its answer becomes in later prompts,
    empty if it never is a placeholder by itself.
    """

    name: str
    model: str
    prompt: Prompt
    answer: float
    answer_high: float
    needs: tuple[str, ...] = ()
    per_row: float = 1.0
    key: str = ""

    @property
    def prompt_tokens(self) -> int:
        """Expected tokens of the prompt, in units of the default tokenizer."""
        return sum(
            run.tokens if isinstance(run, Slot) else len(estimate_tokens(run))
            for run in self.prompt
        )
