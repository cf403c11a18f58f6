"""A run follows its plan: replicas and turns."""

from __future__ import annotations

from dataclasses import dataclass

from weft_gateway.workflows.commands import ANY, RunTool, Send, Work, WriteRow
from weft_gateway.workflows.dispatch import Dispatch
from weft_gateway.workflows.graph import InputType, Llm, Message, Python, Workflow, operator
from weft_gateway.workflows.ranked import Ranked
from weft_gateway.workflows.templates import Template

ROWS = 12


@dataclass(frozen=True)
class OperatorByOperator:
    """The first half of the rows on one replica, the others on the second one."""

    replicas: tuple[str, ...] = ("a", "b")
    windows: tuple[int, ...] = (1, 1)

    def turn(self, operator: str, rank: int) -> tuple[str, int]:
        if not 0 <= rank < ROWS:
            raise IndexError(rank)
        place = {"first": 0, "second": 1, "judge": 2}[operator]
        return self.replicas[rank * 2 // ROWS], place * ROWS + rank


def llm(text: str) -> Llm:
    return Llm((Message("user", Template.parse(text)),))


WORKFLOW = Workflow(
    "w",
    "m",
    {"q": InputType.STR},
    (
        operator("first", llm("You are a physicist. {{ q }}")),
        operator("second", llm("You are a lawyer. {{ q }}")),
        operator("judge", llm("Decide. {{ first }} {{ second }}")),
        operator("post", Python("m:f")),
    ),
    {"judge": "judge"},
)


def test_calls_go_to_their_replicas_in_the_order_of_turns() -> None:
    ranked = Ranked(OperatorByOperator(), first=100)
    assert ranked.windows == {"a": 1, "b": 1}
    assert ranked.replica("post", 100) == ranked.replica("first", 99) == ANY
    machine = Dispatch(WORKFLOW, ranked.windows, plan=ranked)
    machine.start()
    commands = machine.rows([(100 + n, {"q": f"q{n}"}) for n in range(ROWS)], last=True)
    sent: dict[str, list[Work]] = {"a": [], "b": []}
    written = 0
    while commands:
        command = commands.pop(0)
        written += isinstance(command, WriteRow)
        if isinstance(command, Send):
            sent[command.work.window].append(command.work)
        if isinstance(command, Send | RunTool):
            commands += machine.succeeded(command.work.number, "x")
    assert written == ROWS
    for window, works in sent.items():
        assert {ranked.replica(work.operator, work.row) for work in works} == {window}
        turns = [ranked.turn(work.operator, work.row) for work in works]
        assert turns == sorted(turns)
