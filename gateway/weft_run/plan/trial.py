"""A trial of a workflow on rows, without any call: requests, merged requests and prompt lengths.

The machine of a run executes the rows one by one. Columns have their real values. Stand-ins take
the places of answers: equal requests have equal stand-ins, so that requests above them merge as in
a run. The values of tools are unknown: each of their attributes is a stand-in, too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from weft_run.language.graph import Llm, Workflow, bodies, digest
from weft_run.language.requests import LlmRequest, SqlRequest
from weft_run.language.templates import Template, TemplateError
from weft_run.plan.commands import (
    ANY,
    Command,
    Read,
    RunTool,
    Send,
    ToolRequest,
    Usage,
    Work,
    WriteRow,
)
from weft_run.plan.dispatch import Counts, Dispatch
from weft_run.plan.frames import Unit

BLOCK_TOKENS: Final = 16
# Of a token, the usual length in English.
CHARACTERS: Final = 4
# Of an answer without `max_tokens`.
_ANSWER_TOKENS: Final = 128
_ITEMS: Final = 4
_CACHE_BYTES: Final = 1 << 40
# Tokens that a chat template adds to a message, about.
_MARKUP: Final = "<|im_start|>{role}\n{text}<|im_end|>\n"


@dataclass(slots=True)
class Piece:
    """A part of an operator's prompts. names: that it reads, empty for constant text. texts: the
    different ones, by their hashes. characters: of all prompts.
    """

    names: tuple[str, ...]
    texts: set[int] = field(default_factory=set)
    characters: int = 0


@dataclass(slots=True)
class Trial:
    """The result. counts: by operator, as those of a run; `cached` tokens are found in a prefix
    cache without limit, if calls run in the order of the rows. pieces: of prompts, by operator.
    errors: rows that ended early, by message; the counts of these rows are too small.
    """

    rows: int = 0
    counts: Mapping[str, Counts] = field(default_factory=dict)
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)


def trial(workflow: Workflow, rows: Iterable[Mapping[str, Any]]) -> Trial:
    """Try a workflow."""
    found = Trial()
    answers = _Answers(workflow)
    machine = _Measured(workflow, {ANY: 1}, tools=1, open_rows=1, cache_bytes=_CACHE_BYTES)
    machine.pieces = found.pieces
    found.counts = machine.counts
    numbered = enumerate(rows)
    todo: deque[Command] = deque(machine.start())
    while todo:
        match todo.popleft():
            case Send(work) | RunTool(work):
                todo += machine.succeeded(work.number, *answers.of(work))
            case Read(count):
                some = list(islice(numbered, count))
                todo += machine.rows(some, last=len(some) < count)
            case WriteRow(_, row):
                found.rows += 1
                if row.error is not None:
                    found.errors[f"{row.error.operator}: {row.error.message}"] += 1
    return found


class _Measured(Dispatch):
    """The machine; it measures the parts of each prompt. pieces: see `Trial`."""

    pieces: dict[str, list[Piece]]

    def _resolve(self, unit: Unit) -> tuple[LlmRequest | ToolRequest, str | None] | None:
        if isinstance(unit.body, Llm):
            # The machine reports the error.
            with suppress(TemplateError):
                prompt = [one.content for one in unit.body.messages]
                self._measure(unit.operator, prompt, unit.scope())
        return super()._resolve(unit)

    def _measure(self, operator: str, prompt: Iterable[Template], scope: Mapping[str, Any]) -> None:
        texts = [text for one in prompt for text in one.rendered(scope)]
        names = [names for one in prompt for names in one.names_of_parts()]
        pieces = self.pieces.setdefault(operator, [Piece(each) for each in names])
        for piece, text in zip(pieces, texts, strict=True):
            piece.texts.add(hash(text))
            piece.characters += len(text)


class _Unknown(dict[str, Any]):
    """A mapping that has every key."""

    def __missing__(self, key: str) -> Any:
        return f"{self['']} {key}"


class _Answers:
    """The stand-ins, with their tokens."""

    def __init__(self, workflow: Workflow) -> None:
        self._prefixes: set[int] = set()
        self._lists = {one.for_each for one, _ in bodies(workflow.operators)}

    def of(self, work: Work) -> tuple[Any, Usage]:
        named = work.key if work.shared else digest([work.request, work.key, work.row])
        if isinstance(work.request, LlmRequest):
            return self._prompt(work.request, named)
        items = [_Unknown({"": f"{named[:12]} {number}"}) for number in range(_ITEMS)]
        name = work.operator.rpartition(".")[2].partition("[")[0]
        is_list = isinstance(work.request, SqlRequest) or name in self._lists
        return items if is_list else items[0], Usage()

    def _prompt(self, request: LlmRequest, named: str) -> tuple[str, Usage]:
        text = "".join(_MARKUP.format(role=role, text=one) for role, one in request.messages)
        most = request.parameters.get("max_tokens")
        output = min(most, _ANSWER_TOKENS) if isinstance(most, int) else _ANSWER_TOKENS
        size = output * CHARACTERS
        usage = Usage(len(text) // CHARACTERS, self._cached(request.model, text), output)
        return (f"{named} " * (size // len(named) + 1))[:size], usage

    def _cached(self, model: str, text: str) -> int:
        """Return the tokens at the start that an earlier prompt had, in whole blocks."""
        size, found, known, prefix = BLOCK_TOKENS * CHARACTERS, 0, True, hash(model)
        for start in range(0, len(text) - size + 1, size):
            prefix = hash((prefix, text[start : start + size]))
            known = known and prefix in self._prefixes
            found += BLOCK_TOKENS * known
            self._prefixes.add(prefix)
        return found
