"""The meaning of a workflow: the evaluation of one row, operator by operator, without rewrites.

Runs, rewrites and explanations must agree with this module. It is naive on purpose: it executes
every operator once per item and round, in topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft_run.language.graph import Branch, Loop, Operator, Simple, Workflow
from weft_run.language.requests import Request, Text, rendered
from weft_run.language.templates import Template, TemplateError


@dataclass(frozen=True, slots=True)
class Task:
    """One execution of an operator. place: unique within a row, for example `facts[3]` for an item,
    or `try#2.draft` for the second round of a loop.
    """

    place: str
    operator: Operator
    request: Request


# Executes a task and returns its value, or raises OperatorError.
Execute = Callable[[Task], Any]


class OperatorError(Exception):
    """An execution failed. code: a short name of the kind of error, for example `timeout`."""

    def __init__(self, code: str, message: str, attempts: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.attempts = attempts


@dataclass(frozen=True, slots=True)
class RowError:
    """The reason for a failed row. operator: its place."""

    operator: str
    code: str
    message: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a row: its output columns. Of a failed row, those columns that do not depend
    on the failed operator; the others are None. unmet: the row has not failed, and its error is
    that of a loop that kept its last round.
    """

    outputs: Mapping[str, Any]
    error: RowError | None = None
    unmet: bool = False

    @property
    def failed(self) -> bool:
        """Whether the row has failed."""
        return self.error is not None and not self.unmet


def unmet(place: str, loop: Loop) -> RowError:
    """Return the error of a loop whose condition has not held."""
    rounds = "the only round" if loop.max == 1 else f"any of {loop.max} rounds"
    return RowError(place, "unmet", f"'until' did not hold after {rounds}", attempts=0)


class _Failed(Exception):
    def __init__(self, error: RowError) -> None:
        super().__init__(error.message)
        self.error = error


def evaluate(workflow: Workflow, columns: Mapping[str, Any], execute: Execute) -> Row:
    """Evaluate all operators for one row. Operators that need the value of a failed operator do
    not run; all others do. The row has the first error.
    """
    scope = {name: columns.get(name) for name in workflow.inputs}
    failed: set[str] = set()
    first: RowError | None = None
    short: list[RowError] = []
    for one in workflow.operators:
        if failed.intersection(one.inputs):
            failed.add(one.name)
            continue
        loops: list[RowError] = []
        try:
            scope[one.name] = value(one, scope, execute, workflow.model, loops=loops)
        except _Failed as failure:
            failed.add(one.name)
            first = first or failure.error
        else:
            short += loops
    outputs = {
        column: None if name in failed else scope[name] for column, name in workflow.outputs.items()
    }
    return Row(outputs, first or next(iter(short), None), first is None and bool(short))


def value(
    operator: Operator,
    scope: Mapping[str, Any],
    execute: Execute,
    model: str,
    before: str = "",
    loops: list[RowError] | None = None,
) -> Any:
    """Return the value of an operator in a scope: with its items, condition and error handling.
    before: the place of the enclosing loop, which judges the loops inside. loops: gets the errors
    of the loops of a row that keep their last round.
    """
    place = f"{before}{operator.name}"
    if operator.for_each is None:
        return _item(operator, scope, execute, model, place, loops)
    items = scope[operator.for_each]
    if items is None:
        return None
    if not isinstance(items, list | tuple):
        kind = type(items).__name__
        message = f"for_each needs a list, and {operator.for_each!r} is of type {kind}"
        raise _Failed(RowError(place, "not_a_list", message))
    return [
        _item(
            operator,
            {**scope, "item": item, "index": index},
            execute,
            model,
            f"{place}[{index}]",
            loops,
        )
        for index, item in enumerate(items)
    ]


def holds(condition: Template | None, scope: Mapping[str, Any]) -> bool:
    """Whether a condition holds: its value is true, or not empty. Raises TemplateError."""
    return condition is None or bool(condition.value(scope))


def chosen(body: Branch, scope: Mapping[str, Any]) -> Simple | None:
    """Return the body of the first case that holds. Raises TemplateError."""
    return next((case.body for case in body.cases if holds(case.when, scope)), None)


def _item(
    operator: Operator,
    scope: Mapping[str, Any],
    execute: Execute,
    model: str,
    place: str,
    loops: list[RowError] | None,
) -> Any:
    try:
        if not holds(operator.when, scope):
            return None
        found = _once(operator, scope, execute, model, place, loops)
    except TemplateError as error:
        failure = RowError(place, "template", str(error), attempts=0)
    except OperatorError as error:
        failure = RowError(place, error.code, str(error), error.attempts)
    except _Failed as error:
        failure = error.error
    else:
        return {"value": found, "error": None} if operator.on_error == "value" else found
    if operator.on_error == "value":
        return {"value": None, "error": failure.message}
    raise _Failed(failure)


def _once(
    operator: Operator,
    scope: Mapping[str, Any],
    execute: Execute,
    model: str,
    place: str,
    loops: list[RowError] | None,
) -> Any:
    body = operator.body
    if isinstance(body, Loop):
        return _rounds(body, scope, execute, model, place, loops)
    if isinstance(body, Branch):
        case = chosen(body, scope)
        if case is None:
            return None
        body = case
    request = rendered(body, scope, model)
    return request.text if isinstance(request, Text) else execute(Task(place, operator, request))


def _rounds(
    loop: Loop,
    scope: Mapping[str, Any],
    execute: Execute,
    model: str,
    place: str,
    loops: list[RowError] | None,
) -> dict[str, Any]:
    found: dict[str, Any] | None = None
    for number in range(1, loop.max + 1):
        inner = {**scope, "previous": found, "round": number}
        found = {}
        for one in loop.body:
            found[one.name] = inner[one.name] = value(
                one, inner, execute, model, f"{place}#{number}."
            )
        if holds(loop.until, inner):
            break
    else:
        error = unmet(place, loop)
        if loop.unmet == "fail":
            raise _Failed(error)
        if loops is not None:
            loops.append(error)
    return found or {}
