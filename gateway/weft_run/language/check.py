"""Checks of a graph before it runs: names, cycles, types and columns.

YAML and Python share them. A problem names the operators that contain it, from the outermost, and
the word that is wrong, so that a front end can find the place in its source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError
from typing import Final

from weft_run.language.graph import (
    RESERVED,
    Body,
    Branch,
    Case,
    Format,
    InputType,
    Llm,
    Loop,
    Operator,
    Sql,
    Workflow,
    in_order,
    templates,
)
from weft_run.language.templates import Template, TemplateError, leaves
from weft_run.yaml_errors import nearest

# Columns that every result has: the number of a row, and what describes a failed one.
OWN_COLUMNS: Final = ("row", "error")
_ITEM: Final = frozenset({"item", "index"})
_ROUND: Final = frozenset({"previous", "round"})


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of a workflow. operators: names of the operators around it, outermost first; empty
    for inputs and outputs. word: the wrong name, empty if the error concerns no single word.
    """

    operators: tuple[str, ...]
    message: str
    word: str = ""


class WorkflowError(ValueError):
    """A workflow or its data are invalid. The message has one line per error."""


def problems(workflow: Workflow) -> list[Problem]:
    """Return all errors of a workflow. Its operators may be in any order."""
    found = list(_names(workflow))
    scope = dict(workflow.inputs)
    scope.update({one.name: type_of(one) for one in workflow.operators})
    for one in workflow.operators:
        found += _operator(one, (), scope, frozenset())
    found += _cycles(workflow.operators, ())
    if not workflow.outputs:
        found.append(Problem((), "outputs: at least one column is needed"))
    operators = workflow.by_name
    for column, name in workflow.outputs.items():
        if name not in operators:
            hint = nearest(name, operators)
            if name in workflow.inputs:
                hint = f"; pass the column through an operator: {{format: '{{{{ {name} }}}}'}}"
            what = f"outputs.{column}: no operator is named {name!r}{hint}"
            found.append(Problem((), what, name))
        if column in OWN_COLUMNS:
            what = f"outputs: every result has a column {column!r}; use another name"
            found.append(Problem((), what, column))
    return found


def type_of(operator: Operator) -> InputType:
    """Return the type of an operator's value; ANY if it is not known before the run."""
    if operator.for_each is not None:
        return InputType.LIST
    if operator.on_error == "value":
        return InputType.DICT
    return _body_type(operator.body)


def _body_type(body: Body) -> InputType:
    match body:
        case Llm() | Format():
            return InputType.STR
        case Sql():
            return InputType.LIST
        case Loop():
            return InputType.DICT
        case Branch():
            types = {_body_type(case.body) for case in body.cases}
            return types.pop() if len(types) == 1 else InputType.ANY
    return InputType.ANY


def _names(workflow: Workflow) -> Iterator[Problem]:
    seen = set(workflow.inputs)
    for name in workflow.inputs:
        if name in RESERVED:
            yield Problem((), f"inputs: {name!r} is reserved; use another name", name)

    def visit(operators: Iterable[Operator], around: tuple[str, ...]) -> Iterator[Problem]:
        for one in operators:
            path = (*around, one.name)
            if one.name in RESERVED:
                yield Problem(path, f"{one.name!r} is reserved; use another name")
            elif one.name in seen:
                yield Problem(path, f"another operator or input is named {one.name!r}")
            seen.add(one.name)
            if isinstance(one.body, Loop):
                yield from visit(one.body.body, path)

    yield from visit(workflow.operators, ())


def _operator(
    operator: Operator, around: tuple[str, ...], scope: Mapping[str, InputType], own: frozenset[str]
) -> Iterator[Problem]:
    """Yield the errors of an operator. scope: the names that it may read, with types. own: the
    reserved names that have a value here.
    """
    path = (*around, operator.name)
    if operator.for_each is not None:
        each = operator.for_each
        kind = scope.get(each, InputType.ANY)
        if each not in scope and each not in own:
            yield Problem(path, f"for_each: {_unknown(each, [*scope, *own])}", each)
        elif kind not in (InputType.LIST, InputType.ANY):
            yield Problem(path, f"for_each needs a list, and {each!r} is of type {kind}", each)
        own = own | _ITEM
    conditions = [operator.when] if operator.when is not None else []
    body = operator.body
    if isinstance(body, Branch):
        conditions += [case.when for case in body.cases if case.when is not None]
        yield from _branch(body.cases, path)
    inside = dict(scope)
    if isinstance(body, Loop):
        conditions.append(body.until)
        inside.update({one.name: type_of(one) for one in body.body})
        for one in body.body:
            yield from _operator(one, path, inside, own | _ROUND)
        yield from _cycles(body.body, path)
        if not body.body:
            yield Problem(path, "the body of the loop is empty")
        own = own | _ROUND
    for condition in conditions:
        if not condition.is_expression:
            example = "{{ x == 1 }}"
            what = f"a condition is one expression, for example {example}, not {condition.source!r}"
            yield Problem(path, what)
    for inner in [case.body for case in body.cases] if isinstance(body, Branch) else [body]:
        if isinstance(inner, Llm):
            yield from _request(inner, path)
    read = [*templates(body), *conditions]
    for name in sorted({name for template in read for name in template.names}):
        if name not in inside and name not in own:
            yield Problem(path, _unknown(name, [*inside, *own]), name)


def _request(body: Llm, path: tuple[str, ...]) -> Iterator[Problem]:
    """Yield the fields of a request that look like templates: the engine would get the braces."""
    for field, value in [("model", body.model), *body.parameters.items()]:
        # This one is a template of the engine.
        for text in leaves(value, str) if field != "chat_template" else ():
            try:
                names = Template.parse(text).names
            except TemplateError:
                continue
            if names:
                what = (
                    f"{field!r} is the same in all rows and cannot read {names[0]!r}; templates "
                    "belong in 'user', 'system' and 'messages'"
                )
                yield Problem(path, what, names[0])


def _unknown(name: str, known: Collection[str]) -> str:
    if name in _ITEM:
        return f"{name!r} has a value only in operators with for_each"
    if name in _ROUND:
        return f"{name!r} has a value only in the body of a loop"
    return f"no operator or input is named {name!r}{nearest(name, known)}"


def _branch(cases: tuple[Case, ...], path: tuple[str, ...]) -> Iterator[Problem]:
    if not cases:
        yield Problem(path, "branch: at least one case is needed")
    for case in cases[:-1]:
        if case.when is None:
            yield Problem(path, "branch: a case without 'when' always holds; it must be the last")


def _cycles(operators: Iterable[Operator], path: tuple[str, ...]) -> Iterator[Problem]:
    try:
        in_order(operators)
    except CycleError as error:
        names = list(reversed(error.args[1]))
        hint = "; read the round before as `previous`" if path else "; use a loop"
        yield Problem((*path, names[0]), f"cycle: {' -> '.join(names)}{hint}", names[0])
