"""Texts for the shape of an agent's requests: prompts, tool calls, outputs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from weft_bench.overlap.shape import QUERY, TOOLS, ShapeRequest, ShapeTurn
from weft_bench.workloads.streams import stream
from weft_bench.workloads.synthetic import WORDS

Message = dict[str, Any]

# Tokens of the context beside the longest prompt: the tools, 21 calls as generated and as sent
# back, and the longest final answer.
RESERVE: Final = 5120
# Number of words of the note that replaces an earlier turn's outputs.
_NOTEWORDS: Final = 16


@dataclass(frozen=True, slots=True)
class ReadyTurn:
    """One call of the model.

    independent: the messages known before the last tools end. outputs: the outputs of those tools.
    answer: the text to generate, a JSON array of calls; "" in the last turn.
    """

    independent: tuple[Message, ...]
    outputs: tuple[Message, ...]
    answer: str = ""

    @property
    def messages(self) -> list[Message]:
        """The whole prompt."""
        return [*self.independent, *self.outputs]


def tools() -> list[Message]:
    """Return all tools in the format of a chat completion."""
    text = {"type": "string"}
    return [
        {
            "type": "function",
            "function": {
                "name": _tool(number),
                "description": f"Find {words(f'tool/{number}', 5)}.",
                "parameters": {"type": "object", "properties": {"query": text}},
            },
        }
        for number in range(TOOLS)
    ]


def words(purpose: str, count: int) -> str:
    """Return running text of `count` words.

    Equal purposes give equal texts. A shorter text is a prefix of a longer one.
    """
    return " ".join(stream(0, f"overlap/text/{purpose}").choices(WORDS, k=count))


def ready(seed: int, request: ShapeRequest, unit_words: float) -> list[ReadyTurn]:
    """Return the request's turns as prompts. unit_words: words of a median prompt."""
    own = f"{seed}/{request.number}"
    query = {"role": "user", "content": words(f"query/{own}", _count(QUERY, request, unit_words))}
    history: list[Message] = []
    asked: Message | None = None
    turns = []
    for index, turn in enumerate(request.turns):
        name = f"{own}/{index}"
        before = request.turns[index - 1].calls if index else ()
        told = [
            _output(name, number, turn, len(before), unit_words) for number in range(len(before))
        ]
        notes = sum(message["role"] == "tool" for message in history)
        system = _system(turn, notes, unit_words)
        independent = [system, query, *history, *([asked] if asked else ())]
        arguments = [
            {"query": words(f"arguments/{name}/{number}", 4)} for number in range(len(turn.calls))
        ]
        answer = [
            {"name": _tool(call.tool), "arguments": given}
            for call, given in zip(turn.calls, arguments, strict=True)
        ]
        turns.append(
            ReadyTurn(tuple(independent), tuple(told), json.dumps(answer) if answer else "")
        )
        if asked is not None:
            # Outputs are in the prompt once. Later turns contain a note instead.
            note = words(f"note/{name}", _NOTEWORDS)
            history += [asked, *({**message, "content": note} for message in told)]
        asked = _asked(name, answer)
    return turns


def _asked(name: str, answer: Sequence[Mapping[str, Any]]) -> Message:
    """Return the answer as a client sends it back. `name`: of the turn, unique in its request."""
    calls = [
        {
            "id": _id(name, number),
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for number, call in enumerate(answer)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _output(name: str, number: int, turn: ShapeTurn, count: int, unit_words: float) -> Message:
    turn_before, _, index = name.rpartition("/")
    content = words(f"output/{name}/{number}", max(1, round(turn.outputs * unit_words / count)))
    called = _id(f"{turn_before}/{int(index) - 1}", number)
    return {"role": "tool", "tool_call_id": called, "content": content}


def _system(turn: ShapeTurn, notes: int, unit_words: float) -> Message:
    size = (turn.size * (1 - QUERY) - turn.outputs) * unit_words - notes * _NOTEWORDS
    return {"role": "system", "content": words(f"system/{turn.system}", max(16, round(size)))}


def _count(share: float, request: ShapeRequest, unit_words: float) -> int:
    return ceil(request.turns[0].size * share * unit_words)


def _id(name: str, number: int) -> str:
    return f"call_{name.replace('/', '_')}_{number}"


def _tool(number: int) -> str:
    return f"{WORDS[number]}_search"
