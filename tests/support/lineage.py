"""Clients without keys, for tests of lineage: bodies, answers, and whole programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from itertools import count
from random import Random
from typing import Any

from weft_bench.micro.lineage.data import Calls, RecordedCall, body_of
from weft_gateway.programs.lineage.memory import MemoryLineage
from weft_gateway.programs.lineage.rules import Asked
from weft_gateway.programs.lineage.tracker import Lineage

SYSTEM = {
    "role": "system",
    "content": "You are a clerk. Be brief, and follow the policy to the letter.",
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def called(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call_1", "content": text}


class Gateway:
    """The lineage of one gateway, with a clock that the test controls."""

    def __init__(self, store: Any = None) -> None:
        self.store = MemoryLineage() if store is None else store
        self.lineage = Lineage(self.store)
        self.now = 1000.0
        self._names = count()

    def ask(self, *messages: dict[str, Any], tenant: str = "t", **body: Any) -> Asked:
        """Open a call with messages, or with a body of another API."""
        self.now += 1.0
        if messages:
            body["messages"] = list(messages)
        made = {"model": "m", **body}
        return run(self.lineage.ask(tenant, made, f"p{next(self._names)}", self.now))

    def answer(self, call: Asked, *messages: dict[str, Any]) -> None:
        """Answer a call with a message for each choice."""
        self.now += 1.0
        choices = [{"message": message} for message in messages]
        self.answer_body(call, {"choices": choices})

    def answer_body(self, call: Asked, body: dict[str, Any]) -> None:
        """Answer a call with a body of any API."""
        run(self.lineage.answered(call, body, self.now))

    def turn(self, *messages: dict[str, Any], answer: dict[str, Any], **options: Any) -> Asked:
        """Open a call and answer it."""
        call = self.ask(*messages, **options)
        self.answer(call, answer)
        return call

    def fail(self, call: Asked) -> None:
        """End a call without an answer."""
        run(self.lineage.failed(call, self.now))


def run(step: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    return asyncio.run(step)


def synthetic(seed: int, programs: int = 40, tasks: int = 30) -> list[Calls]:
    """Return concurrent programs with the same system prompt.

    Some are dialogues with tools, several for each task. Others are orchestrators whose helpers get
    prompts that do not extend each other.
    """
    rng = Random(seed)
    words = ["".join(rng.choices("abcdefghijkl", k=rng.randint(3, 9))) for _ in range(3000)]

    def text(size: int) -> str:
        return " ".join(rng.choices(words, k=size))

    given = [user(text(30)) for _ in range(tasks)]
    made = []
    for number in range(programs):
        task = given[number % tasks]
        made.append(_team(rng, task, text) if number % 4 == 0 else _dialogue(rng, task, text))
    return made


def _dialogue(rng: Random, task: dict[str, Any], text: Any) -> Calls:
    now, messages, calls = rng.uniform(0, 20), [SYSTEM, task], []
    for _ in range(rng.randint(6, 16)):
        tool = rng.random() < 0.5
        answer = called("search", query=text(6), limit=3) if tool else said(text(20))
        calls.append(_call(now, messages, answer))
        messages = [*messages, answer, result(text(40)) if tool else user(text(8))]
        now += rng.uniform(2, 5)
    return calls


def _team(rng: Random, task: dict[str, Any], text: Any) -> Calls:
    now, calls, notes = rng.uniform(0, 20), [], [text(12) + ". " + text(12)]
    calls.append(_call(now, [SYSTEM, task], said(notes[0])))
    for _ in range(rng.randint(3, 8)):
        now += rng.uniform(2, 5)
        order = f"{text(15)}. {text(14)}"
        told = [user(f"Team, we work on this: {task['content']}. Known so far: {' '.join(notes)}")]
        calls.append(_call(now, told, said(json.dumps({"speaker": "helper", "order": order}))))
        now += rng.uniform(2, 5)
        notes.append(f"{text(15)}. {text(15)}")
        calls.append(_call(now, [user(f"You are a helper. {order}")], said(notes[-1])))
    return calls


def _call(now: float, messages: list[dict[str, Any]], answer: dict[str, Any]) -> RecordedCall:
    body = body_of({"model": "m", "messages": messages})
    return RecordedCall(now, 1.5, body, body_of({"choices": [{"message": answer}]}))
