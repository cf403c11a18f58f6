"""Prompts as a plan sees them: constant text and placeholders with expected lengths. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

Token = Hashable

BLOCK_TOKENS: Final = 16
# Of a token, the usual length in English.
CHARACTERS: Final = 4
# Of an answer without `max_tokens`.
ANSWER_TOKENS: Final = 128


@lru_cache(maxsize=4096)
def estimate_tokens(text: str) -> tuple[Token, ...]:
    """Return a text in pieces of `CHARACTERS`."""
    return tuple([text[at : at + CHARACTERS] for at in range(0, len(text), CHARACTERS)])


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder in a prompt. key: equal for equal content in the same row. tokens: expected
    length. axes: the columns and other names over which the content varies; rows with equal values
    of them have equal content. Empty: the content is the same everywhere.
    """

    key: str
    tokens: int
    axes: tuple[str, ...] = ()


Run = str | Slot
Prompt = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Chat:
    """The markup that a chat template prints around messages. opening contains `{role}`."""

    opening: str = "<|im_start|>{role}\n"
    closing: str = "<|im_end|>\n"

    def render(self, messages: Iterable[tuple[str, Iterable[Run]]]) -> Prompt:
        """Return the prompt of messages, each a role and its runs, with the answer's opening."""
        found: list[Run] = []
        for role, runs in messages:
            _append(found, self.opening.format(role=role))
            for run in runs:
                _append(found, run)
            _append(found, self.closing)
        _append(found, self.opening.format(role="assistant"))
        return tuple(found)


def _append(found: list[Run], run: Run) -> None:
    """Append a run; neighbouring texts become one, because a tokenizer reads them as one."""
    if isinstance(run, str) and found and isinstance(found[-1], str):
        found[-1] += run
    elif run:
        found.append(run)


def cut(tokens: int, block: int) -> int:
    """Return whole blocks in tokens."""
    return tokens - tokens % block
