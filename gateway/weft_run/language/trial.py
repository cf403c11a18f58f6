"""A trial of a workflow on rows, without any call: requests, merged requests and prompt lengths.

Columns have their real values. Stand-ins take the places of answers: equal requests have equal
stand-ins, so that requests above them merge as in a run. The values of tools are unknown: each of
their attributes is a stand-in, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from weft_run.language.graph import Loop, Operator, Workflow, digest, written
from weft_run.language.requests import LlmRequest, SqlRequest
from weft_run.language.signature import signature
from weft_run.plan.evaluate import Task, evaluate
from weft_run.plan.prompts import ANSWER_TOKENS, BLOCK_TOKENS, CHARACTERS

_ITEMS: Final = 4
# Tokens that a chat template adds to a message, about.
_MARKUP: Final = "<|im_start|>{role}\n{text}<|im_end|>\n"


@dataclass(slots=True)
class Figures:
    """The executions of an operator. merged: those that needed no request, because an equal one was
    made before. prompt, cached, output: tokens of the requests of a model; cached: found in a
    prefix cache without limit, if calls run in the order of the rows.
    """

    executions: int = 0
    merged: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0

    @property
    def requests(self) -> int:
        """Calls of a model or a tool."""
        return self.executions - self.merged


@dataclass(slots=True)
class Trial:
    """The result. tallies: by operator, also of loops' bodies. errors: rows that ended early, by
    message; the counts of these rows are too small.
    """

    rows: int = 0
    tallies: dict[str, Figures] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)


def trial(workflow: Workflow, rows: Iterable[Mapping[str, Any]], *, merges: bool) -> Trial:
    """Try a workflow. merges: whether equal requests are made once, as in a run."""
    found = Trial()
    execute = _Executor(workflow, found.tallies, merges)
    for number, row in enumerate(rows):
        execute.row = number
        result = evaluate(workflow, row, execute)
        found.rows += 1
        if result.error is not None:
            found.errors[f"{result.error.operator}: {result.error.message}"] += 1
    return found


class _Unknown(dict[str, Any]):
    """A mapping that has every key."""

    def __missing__(self, key: str) -> Any:
        return f"{self['']} {key}"


class _Executor:
    def __init__(self, workflow: Workflow, tallies: dict[str, Figures], merges: bool) -> None:
        self.row = 0
        self._tallies = tallies
        self._answers: dict[str, Any] | None = {} if merges else None
        self._prefixes: set[int] = set()
        self._lists = _lists(workflow.operators)
        self._written = written(workflow)

    def __call__(self, task: Task) -> Any:
        tally = self._tallies.setdefault(task.operator.name, Figures())
        tally.executions += 1
        request = task.request
        key = signature(request, task.operator.idempotent)
        if isinstance(request, SqlRequest) and request.connection in self._written:
            key = None
        if key is not None and self._answers is not None and key in self._answers:
            tally.merged += 1
            return self._answers[key]
        named = key or digest([request, task.place, self.row])
        if isinstance(request, LlmRequest):
            answer: Any = self._prompt(request, tally, named)
        else:
            items = [_Unknown({"": f"{named[:12]} {number}"}) for number in range(_ITEMS)]
            is_list = isinstance(request, SqlRequest) or task.operator.name in self._lists
            answer = items if is_list else items[0]
        if key is not None and self._answers is not None:
            self._answers[key] = answer
        return answer

    def _prompt(self, request: LlmRequest, tally: Figures, named: str) -> str:
        text = "".join(_MARKUP.format(role=role, text=one) for role, one in request.messages)
        most = request.parameters.get("max_tokens")
        output = min(most, ANSWER_TOKENS) if isinstance(most, int) else ANSWER_TOKENS
        tally.prompt += len(text) // CHARACTERS
        tally.cached += self._cached(request.model, text)
        tally.output += output
        size = output * CHARACTERS
        return (f"{named} " * (size // len(named) + 1))[:size]

    def _cached(self, model: str, text: str) -> int:
        """Return the tokens at the start that an earlier prompt had, in whole blocks."""
        size, found, known, prefix = BLOCK_TOKENS * CHARACTERS, 0, True, hash(model)
        for start in range(0, len(text) - size + 1, size):
            prefix = hash((prefix, text[start : start + size]))
            known = known and prefix in self._prefixes
            found += BLOCK_TOKENS * known
            self._prefixes.add(prefix)
        return found


def _lists(operators: Iterable[Operator]) -> set[str]:
    """The names over which an operator runs with `for_each`."""
    found = set()
    for one in operators:
        if one.for_each is not None:
            found.add(one.for_each)
        if isinstance(one.body, Loop):
            found |= _lists(one.body.body)
    return found
