"""The LLM calls of a workflow as the planner sees them: prompts with expected lengths. Pure.

Planning needs no rows. A profile has the expected lengths of columns and answers, measured on
other rows or by earlier runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from weft_run.language.graph import Branch, Llm, Loop, Operator, Workflow
from weft_run.language.templates import Constant, Placeholder, Template
from weft_run.plan.prompts import ANSWER_TOKENS, Chat, Prompt, Run, Slot, estimate_tokens

# Expected lengths without a profile.
_COLUMN_TOKENS: Final = 64.0
_ITEMS: Final = 4.0
# The axis of content that differs in each row, even where all columns agree.
ROW: Final = "row"


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


@dataclass(frozen=True, slots=True)
class Profile:
    """Expected lengths. columns: tokens of a column as text. answers, answers_high: tokens of an
    operator's value, mean and 90th percentile; for tools the mean only. items: length of the list
    that an operator with `for_each` reads. rounds: of a loop. distinct: distinct values of a column
    over all rows; a column without an entry differs in each row.
    """

    columns: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, float] = field(default_factory=dict)
    answers_high: Mapping[str, float] = field(default_factory=dict)
    items: Mapping[str, float] = field(default_factory=dict)
    rounds: Mapping[str, float] = field(default_factory=dict)
    distinct: Mapping[str, int] = field(default_factory=dict)


def planned_calls(
    workflow: Workflow, profile: Profile | None = None, chat: Chat | None = None
) -> tuple[PlannedCall, ...]:
    """Return the calls of a workflow in topological order.

    A call in a loop is named `loop.operator`, a call of a branch's second and later cases
    `operator[1]` and so on.
    """
    reader = _Reader(workflow, profile or Profile(), chat or Chat())
    for one in workflow.operators:
        reader.read(one, "", {}, 1.0)
    return tuple(reader.calls)


@dataclass(frozen=True, slots=True)
class _Value:
    """A name in a scope. tokens: of its text. needs: the nearest calls. axes: as in `Slot`."""

    tokens: float
    needs: frozenset[str] = frozenset()
    axes: frozenset[str] = frozenset()
    key: str = ""


class _Reader:
    def __init__(self, workflow: Workflow, profile: Profile, chat: Chat) -> None:
        self.calls: list[PlannedCall] = []
        self._model, self._profile, self._chat = workflow.model, profile, chat
        self._columns = {
            name: _Value(
                profile.columns.get(name, _COLUMN_TOKENS), axes=frozenset({name}), key=name
            )
            for name in workflow.inputs
        }
        self._scope: dict[str, _Value] = {}

    def read(self, one: Operator, prefix: str, local: Mapping[str, _Value], times: float) -> None:
        """Add the calls of an operator. prefix: the names of the loops around it. times: calls in
        one row.
        """
        name = prefix + one.name
        scope = {**self._columns, **self._scope, **local}
        if one.for_each is not None:
            count = self._profile.items.get(name, _ITEMS)
            times *= count
            items = scope.get(one.for_each, _Value(_COLUMN_TOKENS))
            axes = items.axes | {f"item of {one.for_each}"}
            item = _Value(items.tokens / count, items.needs, axes, f"item of {items.key}")
            scope |= {"item": item, "index": _Value(1.0, items.needs, axes, f"index {items.key}")}
        read = _together(scope, one.inputs)
        made: frozenset[str] = frozenset()
        body = one.body
        if isinstance(body, Llm):
            made = self._call(name, body, scope, read, times, "" if one.for_each else name)
        elif isinstance(body, Loop):
            made = self._loop(name, body, scope, times)
        elif isinstance(body, Branch):
            for number, case in enumerate(body.cases):
                if isinstance(case.body, Llm):
                    at = f"{name}[{number}]" if number else name
                    made |= self._call(at, case.body, scope, read, times / len(body.cases), "")
        tokens = self._profile.answers.get(name, ANSWER_TOKENS)
        if one.for_each is not None:
            tokens *= self._profile.items.get(name, _ITEMS)
        axes = read.axes if one.deterministic else read.axes | {ROW}
        self._scope[name] = _Value(tokens, made or read.needs, axes, name)
        if prefix:
            self._scope[one.name] = self._scope[name]

    def _loop(
        self, name: str, body: Loop, scope: Mapping[str, _Value], times: float
    ) -> frozenset[str]:
        rounds = self._profile.rounds.get(name, (1 + body.max) / 2)
        before = len(self.calls)
        saved = dict(self._scope)
        round_axis = frozenset({f"round of {name}"})
        inside = {
            **{key: scope[key] for key in ("item", "index") if key in scope},
            "previous": _Value(ANSWER_TOKENS, axes=round_axis, key=f"previous {name}"),
            "round": _Value(1.0, axes=round_axis, key=f"round {name}"),
        }
        for one in body.body:
            self.read(one, f"{name}.", inside, times * rounds)
        self._scope = {**saved, **{k: v for k, v in self._scope.items() if "." in k}}
        return frozenset(call.name for call in self.calls[before:])

    def _call(
        self,
        name: str,
        body: Llm,
        scope: Mapping[str, _Value],
        read: _Value,
        times: float,
        key: str,
    ) -> frozenset[str]:
        prompt = self._chat.render(
            (message.role, _runs(message.content, scope)) for message in body.messages
        )
        most = body.parameters.get("max_tokens")
        usual = self._profile.answers.get(name, ANSWER_TOKENS)
        high = self._profile.answers_high.get(name, 1.5 * usual)
        if isinstance(most, int) and most > 0:
            usual, high = min(usual, most), min(high, most)
        self.calls.append(
            PlannedCall(
                name,
                body.model or self._model,
                prompt,
                usual,
                high,
                tuple(sorted(read.needs)),
                times,
                key,
            )
        )
        return frozenset({name})


def _runs(template: Template, scope: Mapping[str, _Value]) -> Iterator[Run]:
    for part in template.parts:
        if isinstance(part, Constant):
            yield part.text
        else:
            yield _slot(part, template, scope)


def _slot(part: Placeholder, template: Template, scope: Mapping[str, _Value]) -> Slot:
    names = sorted({name for one in part.names for name in _bound(template.bindings.get(one, one))})
    found = _together(scope, names)
    plain = len(names) == 1 and part.source.strip("{} ") in part.names
    # The same expression over the same names has the same text.
    key = found.key if plain else f"{part.source} of {', '.join(_key(scope, n) for n in names)}"
    return Slot(key, max(1, round(found.tokens)), tuple(sorted(found.axes)))


def _key(scope: Mapping[str, _Value], name: str) -> str:
    return scope[name].key if name in scope else name


def _bound(reference: object) -> Iterable[str]:
    if isinstance(reference, str):
        return (reference,)
    assert isinstance(reference, tuple)
    return [name for one in reference for name in _bound(one)]


def _together(scope: Mapping[str, _Value], names: Iterable[str]) -> _Value:
    """Return the sum of the values of these names; unknown ones have the usual length."""
    found = [scope.get(name, _Value(_COLUMN_TOKENS, key=name)) for name in names]
    return _Value(
        sum(one.tokens for one in found),
        frozenset().union(*(one.needs for one in found)),
        frozenset().union(*(one.axes for one in found)),
        found[0].key if len(found) == 1 else "",
    )
