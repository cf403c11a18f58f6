"""Rows in progress: which operators may start, and what a row's result is. Pure.

Each operator starts as soon as its inputs are known; rows, items and branches never wait for each
other. An operator with `for_each` over another one starts item by item.

The result is that of an execution of one operator after the other. An operator fails with its
first error, in the order of items, rounds and operators: later executions are dropped, and
earlier ones continue, because one of them may fail too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from weft_run.language.graph import Body, Branch, Format, Loop, Workflow
from weft_run.language.templates import Template, TemplateError
from weft_run.plan.commands import Failure, Row, RowError
from weft_run.plan.frames import FirstError, Frame, Map, Order, Steps, Unit

_UNTIL: Final = 1 << 30


class Wavefront:
    """The rows in progress. After each method, `ready` contains the new units to run, `dropped`
    those whose values are not needed any more, and `ended` the rows that have ended; the caller
    empties the lists.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._inputs = tuple(workflow.inputs)
        self._outputs = dict(workflow.outputs)
        self._steps = Steps(workflow.operators)
        self._todo: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._failing: list[tuple[Frame, int]] = []
        self.open: dict[int, Frame] = {}
        self.ready: list[Unit] = []
        self.dropped: list[Unit] = []
        self.ended: list[tuple[int, Row]] = []

    def begin(self, number: int, columns: Mapping[str, Any]) -> None:
        """Begin a row."""
        values = {name: columns.get(name) for name in self._inputs}
        frame = self.open[number] = Frame(number, self._steps, values)
        self._enter(frame)
        self._settle()

    def done(self, unit: Unit, value: Any) -> None:
        """A unit has a value. A dropped unit is ignored."""
        if not unit.dropped:
            self._leave(unit)
            self._item_done(unit.frame, unit.index, unit.item, value)
            self._settle()

    def failed(self, unit: Unit, failure: Failure) -> None:
        """A unit has failed. A dropped unit is ignored."""
        if not unit.dropped:
            self._leave(unit)
            error = FirstError(unit.order, unit.place, failure)
            self._item_failed(unit.frame, unit.index, unit.item, error)
            self._settle()

    def _settle(self) -> None:
        """Do everything that follows from an event. A queue replaces recursion: chains of operators
        may be long.
        """
        while self._todo or self._failing:
            while self._todo:
                method, arguments = self._todo.popleft()
                method(*arguments)
            if self._failing:
                frame, group = self._failing.pop()
                if not (frame.ended or frame.running[group] or self._takes_more(frame, group)):
                    self._group_failed(frame, group)

    def _takes_more(self, frame: Frame, group: int) -> bool:
        """Whether an operator of a row takes further items from an operator above it, of which an
        earlier one may fail too.
        """
        source = frame.steps.source[group] if group >= 0 else None
        above = frame.maps.get(source) if source is not None else None
        return above is not None and above.left > 0 and source not in frame.failed

    def _leave(self, part: Unit | Frame) -> None:
        """A unit or a round does not run any more."""
        if isinstance(part, Unit):
            frame, index = part.frame, part.index
            frame.units.remove(part)
        else:
            assert part.owner is not None
            frame, index, _ = part.owner
            frame.loops.remove(part)
        group = frame.group(index)
        frame.running[group] -= 1
        if not frame.running[group] and group in frame.errors:
            self._failing.append((frame, group))

    def _enter(self, frame: Frame) -> None:
        frame.waiting = list(frame.steps.waits)
        frame.left = len(frame.steps.operators)
        for index, waits in enumerate(frame.waiting):
            if not waits:
                self._todo.append((self._start, (frame, index)))
        if not frame.left:
            self._todo.append((self._frame_done, (frame,)))

    def _start(self, frame: Frame, index: int) -> None:
        """Start an operator whose inputs are known."""
        one, order = frame.steps.operators[index], (*frame.order, index)
        if not frame.live(order):
            return
        if one.for_each is None:
            self._start_item(frame, index, None)
            return
        source = frame.steps.source[index]
        above = frame.maps.get(source) if source is not None else None
        items = above.results if above is not None else frame.values[one.for_each]
        if items is None:
            self._operator_done(frame, index, None)
            return
        if not isinstance(items, list | tuple):
            kind = type(items).__name__
            what = f"for_each needs a list, and {one.for_each!r} is of type {kind}"
            place = frame.path + one.name
            self._fail(frame, FirstError(order, place, Failure("not_a_list", what)))
            return
        size = len(items)
        frame.maps[index] = Map(items, [None] * size, [False] * size, size)
        for reader in frame.steps.readers[index]:
            if frame.steps.source[reader] == index:
                self._arrived(frame, reader)
        if above is not None:
            above.followers.append(index)
        for at in range(size):
            if above is None or above.done[at]:
                self._todo.append((self._start_item, (frame, index, at)))
        if not size:
            self._operator_done(frame, index, [])

    def _start_item(self, frame: Frame, index: int, item: int | None) -> None:
        one = frame.steps.operators[index]
        order = (*frame.order, index, item or 0)
        if not frame.live(order):
            return
        place = _place(frame, index, item)
        body: Body = one.body
        operator = frame.steps.paths[index]
        try:
            scope = frame.scope(index, item)
            if not holds(one.when, scope):
                self._item_has(frame, index, item, None)
                return
            if isinstance(body, Loop):
                self._round(frame, index, item, 1, None)
                return
            if isinstance(body, Branch):
                at = next((n for n, c in enumerate(body.cases) if holds(c.when, scope)), None)
                if at is None:
                    self._item_done(frame, index, item, None)
                    return
                # The planner's name of a later case.
                operator += f"[{at}]" if at else ""
                body = body.cases[at].body
            if isinstance(body, Format):
                self._item_done(frame, index, item, body.template.text(scope))
                return
        except TemplateError as error:
            self._item_failed(frame, index, item, FirstError(order, place, template_failure(error)))
            return
        unit = Unit(frame, index, item, body, order, place, operator)
        frame.units.add(unit)
        frame.running[frame.group(index)] += 1
        self.ready.append(unit)

    def _round(self, frame: Frame, index: int, item: int | None, number: int, before: Any) -> None:
        """Begin a round of a loop. before: the values of the previous one."""
        inner = Frame(
            frame.row,
            frame.steps.inner[index],
            {**frame.scope(index, item), "previous": before, "round": number},
            (*frame.order, index, item or 0, number),
            f"{_place(frame, index, item)}#{number}.",
            (frame, index, item),
            number,
        )
        frame.loops.add(inner)
        frame.running[frame.group(index)] += 1
        self._enter(inner)

    def _frame_done(self, frame: Frame) -> None:
        """All operators of a frame have ended."""
        if frame.ended:
            return
        frame.ended = True
        if frame.owner is None:
            self._row_done(frame)
            return
        above, index, item = frame.owner
        self._leave(frame)
        loop = above.steps.operators[index].body
        assert isinstance(loop, Loop)
        values = {one.name: frame.values[one.name] for one in loop.body}
        place, order = _place(above, index, item), (*frame.order, _UNTIL)
        try:
            met = holds(loop.until, frame.values)
        except TemplateError as error:
            failed = FirstError(order, place, template_failure(error))
            self._item_failed(above, index, item, failed)
            return
        if not met and frame.round < loop.max:
            self._round(above, index, item, frame.round + 1, values)
            return
        if not met:
            short = FirstError(order, place, unmet(loop))
            if loop.unmet == "fail":
                self._item_failed(above, index, item, short)
                return
            above.unmet.append(short)
        self._item_done(above, index, item, values)

    def _row_done(self, frame: Frame) -> None:
        del self.open[frame.row]
        lost = {frame.steps.operators[index].name for index in frame.failed}
        outputs = {
            column: None if name in lost else frame.values[name]
            for column, name in self._outputs.items()
        }
        error = None
        short = [one for one in frame.unmet if one.order[0] not in frame.failed]
        if first := min(frame.errors.values() or short, default=None):
            error = RowError(first.place, *first.failure)
        self.ended.append((frame.row, Row(outputs, error, not frame.errors and bool(short))))

    def _item_done(self, frame: Frame, index: int, item: int | None, value: Any) -> None:
        if frame.steps.operators[index].on_error == "value":
            value = {"value": value, "error": None}
        self._item_has(frame, index, item, value)

    def _item_failed(self, frame: Frame, index: int, item: int | None, error: FirstError) -> None:
        if frame.steps.operators[index].on_error == "value":
            value = {"value": None, "error": error.failure.message}
            self._item_has(frame, index, item, value)
        else:
            self._fail(frame, error)

    def _item_has(self, frame: Frame, index: int, item: int | None, value: Any) -> None:
        if item is None:
            self._operator_done(frame, index, value)
            return
        found = frame.maps[index]
        found.results[item] = value
        found.done[item] = True
        found.left -= 1
        for follower in found.followers:
            self._todo.append((self._start_item, (frame, follower, item)))
        if not found.left:
            self._operator_done(frame, index, found.results)

    def _operator_done(self, frame: Frame, index: int, value: Any) -> None:
        frame.values[frame.steps.operators[index].name] = value
        for reader in frame.steps.readers[index]:
            # A reader that takes the items one by one has arrived with their number.
            if frame.steps.source[reader] != index or index not in frame.maps:
                self._arrived(frame, reader)
            elif frame.group(reader) in frame.errors:
                self._failing.append((frame, frame.group(reader)))
        self._operator_ended(frame)

    def _operator_ended(self, frame: Frame) -> None:
        frame.left -= 1
        if not frame.left:
            self._todo.append((self._frame_done, (frame,)))

    def _operator_failed(self, frame: Frame, index: int) -> None:
        """An operator of a row has no value, and so have those that read it."""
        if index in frame.failed:
            return
        frame.failed.add(index)
        self._drop(frame, index, (*frame.order, index))
        for reader in frame.steps.readers[index]:
            self._todo.append((self._operator_failed, (frame, reader)))
        self._operator_ended(frame)

    def _arrived(self, frame: Frame, index: int) -> None:
        frame.waiting[index] -= 1
        if not frame.waiting[index]:
            self._todo.append((self._start, (frame, index)))

    def _fail(self, frame: Frame, error: FirstError) -> None:
        """Record an error, and drop everything that it ends."""
        group = frame.group(error.order[len(frame.order)])
        first = frame.errors.get(group)
        if first is None or error.order < first.order:
            frame.errors[group] = error
            self._drop(frame, group, error.order)
        self._failing.append((frame, group))

    def _drop(self, frame: Frame, group: int, after: Order) -> None:
        """Drop all executions of a group after a position."""
        units, loops = frame.inside(group)
        for unit in [one for one in units if one.order > after]:
            unit.dropped = True
            self._leave(unit)
            self.dropped.append(unit)
        for loop in loops:
            inside = {loop.group(index) for index in range(len(loop.steps.operators))}
            for one in inside:
                self._drop(loop, one, after)
            if loop.order > after:
                loop.ended = True
                self._leave(loop)

    def _group_failed(self, frame: Frame, group: int) -> None:
        """Nothing before the first error of a group runs any more."""
        if frame.owner is None:
            self._operator_failed(frame, group)
            return
        frame.ended = True
        above, index, item = frame.owner
        self._leave(frame)
        self._item_failed(above, index, item, frame.errors[group])


def holds(condition: Template | None, scope: Mapping[str, Any]) -> bool:
    """Whether a condition holds: its value is true, or not empty. Raises TemplateError."""
    return condition is None or bool(condition.value(scope))


def unmet(loop: Loop) -> Failure:
    """Return the failure of a loop whose condition has not held."""
    rounds = "the only round" if loop.max == 1 else f"any of {loop.max} rounds"
    return Failure("unmet", f"'until' did not hold after {rounds}", attempts=0)


def template_failure(error: TemplateError) -> Failure:
    """Return the failure of an operator whose template cannot be rendered."""
    return Failure("template", str(error), attempts=0)


def _place(frame: Frame, index: int, item: int | None) -> str:
    name = frame.path + frame.steps.operators[index].name
    return name if item is None else f"{name}[{item}]"
