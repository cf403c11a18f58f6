"""The meaning of a workflow: the evaluation of one row, operator by operator, without rewrites.

Runs and rewrites must agree with this module. It is naive on purpose: it executes every operator
once per item and round, in topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft_run.language.graph import Branch, Loop, Operator, Workflow
from weft_run.language.requests import Request, Text, rendered
from weft_run.language.templates import TemplateError
from weft_run.plan.commands import Row, RowError
from weft_run.plan.wavefront import holds, unmet


@dataclass(frozen=True, slots=True)
class Task:
    """One execution of an operator. place: as in `frames.Unit`."""

    place: str
    operator: Operator
    request: Request


class OperatorError(Exception):
    """An execution failed. code: a short name of the kind of error, for example `timeout`."""

    def __init__(self, code: str, message: str, attempts: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.attempts = attempts


class _Failed(Exception):
    def __init__(self, error: RowError) -> None:
        super().__init__(error.message)
        self.error = error


def evaluate(workflow: Workflow, columns: Mapping[str, Any], execute: Callable[[Task], Any]) -> Row:
    """Evaluate all operators for one row. execute: returns the value of a task, or raises
    OperatorError. Operators that need the value of a failed operator do not run; all others do. The
    row has the first error.
    """
    scope = {name: columns.get(name) for name in workflow.inputs}
    failed: set[str] = set()
    first: RowError | None = None
    short: list[RowError] = []
    for one in workflow.operators:
        if failed.intersection(one.inputs):
            failed.add(one.name)
            continue
        operator = _Evaluation(execute, workflow.model)
        try:
            scope[one.name] = operator.value(one, scope)
        except _Failed as failure:
            failed.add(one.name)
            first = first or failure.error
        else:
            short += operator.short
    outputs = {
        column: None if name in failed else scope[name] for column, name in workflow.outputs.items()
    }
    return Row(outputs, first or next(iter(short), None), first is None and bool(short))


class _Evaluation:
    """Of one operator of a row. short: the errors of its loops that keep their last round, without
    those of loops inside of loops.
    """

    def __init__(self, execute: Callable[[Task], Any], model: str) -> None:
        self._execute, self._model = execute, model
        self.short: list[RowError] = []

    def value(self, one: Operator, scope: Mapping[str, Any], before: str = "") -> Any:
        """Return the value in a scope. before: the place of the loop around it."""
        place = f"{before}{one.name}"
        if one.for_each is None:
            return self._item(one, scope, place)
        items = scope[one.for_each]
        if items is None:
            return None
        if not isinstance(items, list | tuple):
            kind = type(items).__name__
            message = f"for_each needs a list, and {one.for_each!r} is of type {kind}"
            raise _Failed(RowError(place, "not_a_list", message))
        return [
            self._item(one, {**scope, "item": item, "index": index}, f"{place}[{index}]")
            for index, item in enumerate(items)
        ]

    def _item(self, one: Operator, scope: Mapping[str, Any], place: str) -> Any:
        try:
            if not holds(one.when, scope):
                return None
            found = self._once(one, scope, place)
        except TemplateError as error:
            failure = RowError(place, "template", str(error), attempts=0)
        except OperatorError as error:
            failure = RowError(place, error.code, str(error), error.attempts)
        except _Failed as error:
            failure = error.error
        else:
            return {"value": found, "error": None} if one.on_error == "value" else found
        if one.on_error == "value":
            return {"value": None, "error": failure.message}
        raise _Failed(failure)

    def _once(self, one: Operator, scope: Mapping[str, Any], place: str) -> Any:
        body = one.body
        if isinstance(body, Loop):
            return self._rounds(body, scope, place)
        if isinstance(body, Branch):
            case = next((case.body for case in body.cases if holds(case.when, scope)), None)
            if case is None:
                return None
            body = case
        request = rendered(body, scope, self._model)
        return (
            request.text if isinstance(request, Text) else self._execute(Task(place, one, request))
        )

    def _rounds(self, loop: Loop, scope: Mapping[str, Any], place: str) -> dict[str, Any]:
        found: dict[str, Any] | None = None
        for number in range(1, loop.max + 1):
            inner = {**scope, "previous": found, "round": number}
            found = {}
            for one in loop.body:
                value = self.value(one, inner, f"{place}#{number}.")
                found[one.name] = inner[one.name] = value
            if holds(loop.until, inner):
                break
        else:
            error = RowError(place, *unmet(loop))
            if loop.unmet == "fail":
                raise _Failed(error)
            if "#" not in place:
                self.short.append(error)
        return found or {}
