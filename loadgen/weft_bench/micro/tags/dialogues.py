"""Chat dialogues with tools, as the bodies of their calls, from public agent data."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

from weft_bench.workloads.schema import TraceError
from weft_bench.workloads.traces.bfcl import APIS

Body = dict[str, Any]
Program = list[Body]

_TURN: Final = re.compile(r"(?:^|\n\n)(user|assistant|system): ")
_LONG: Final = 300
_LAST: Final = 30
_FUNCTIONS: Final = "bfcl_multi_turn/functions.jsonl.xz"


def dialogues(data: Path) -> dict[str, list[Program]]:
    """Return the programs of each data set in order, by the set's name.

    A program is the bodies of its calls, with `messages` and, if any, `tools`. Raises TraceError if
    no data exists.
    """
    readers = {
        "tau_airline": _airline,
        "bfcl": _functions,
        "miniswe": _issues,
        "magagent": _agents,
        "long": _long,
        "restarted": _restarted,
    }
    found = {}
    for name, reader in readers.items():
        try:
            found[name] = list(reader(data))
        except FileNotFoundError:
            continue
    if not found:
        raise TraceError(f"{data} holds none of {', '.join(readers)}")
    return found


def _lines(file: Path) -> Iterator[Any]:
    with lzma.open(file, "rt") as opened:
        for line in opened:
            yield json.loads(line)


def _tools(data: Path) -> dict[str, list[Body]]:
    """Return OpenAI tools by the name of their interface."""
    found: dict[str, list[Body]] = {}
    for line in _lines(data / _FUNCTIONS):
        function = {key: line["function"][key] for key in ("name", "description", "parameters")}
        found.setdefault(line["api"], []).append({"type": "function", "function": function})
    return found


def _calls(messages: list[Body], tools: list[Body]) -> Program:
    """Return one call per answer in the dialogue."""
    program = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant" and index:
            body: Body = {"messages": messages[:index]}
            if tools:
                body["tools"] = tools
            program.append(body)
    return program


def _airline(data: Path) -> Iterator[Program]:
    """Yield airline dialogues.

    They do not contain the offered tools. A booking interface of the other data set replaces them.
    """
    tools = _tools(data).get("travel_booking", [])
    for line in _lines(data / "tau_airline/trajectories.jsonl.xz"):
        yield _calls(line["messages"], tools)


def _functions(data: Path) -> Iterator[Program]:
    """Yield dialogues with real questions and tools.

    The calls are the data set's solutions without arguments. A tool returns a part of the task's
    initial state.
    """
    by_api = _tools(data)
    rng = Random(0)
    for line in _lines(data / "bfcl_multi_turn/base.jsonl.xz"):
        tools = [tool for name in line["involved_classes"] for tool in by_api[APIS[name]]]
        state = json.dumps(line["initial_config"])
        steps = iter(line["path"])
        each = max(1, len(line["path"]) // max(1, len(line["question"])))
        messages: list[Body] = [{"role": "system", "content": "Solve the task with the tools."}]
        for turn in line["question"]:
            messages.extend(turn)
            for step in islice(steps, each):
                function = {"name": step.partition(".")[2], "arguments": "{}"}
                call = {"id": "c", "type": "function", "function": function}
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
                start = rng.randrange(len(state))
                result = state[start : start + rng.randint(20, 600)]
                messages.append({"role": "tool", "tool_call_id": "c", "content": result})
            messages.append({"role": "assistant", "content": "That is done."})
        yield _calls(messages, tools)


def _sessions(file: Path) -> Iterator[list[Body]]:
    sessions: dict[str, list[Body]] = {}
    for line in _lines(file):
        sessions.setdefault(line["session_id"], []).append(line)
    for session in sessions.values():
        yield sorted(session, key=lambda line: line["timestamp"])


def _issues(data: Path) -> Iterator[Program]:
    """Yield issue-fixing runs.

    The text that a call's input adds to the previous input is a command's output.
    """
    for session in _sessions(data / "agent_calls/miniswe.jsonl.xz"):
        messages: list[Body] = []
        before = ""
        program: Program = []
        for line in session:
            text = line["input"]
            if before and text.startswith(before):
                messages.append({"role": "tool", "content": text[len(before) :]})
            else:
                messages = [{"role": "user", "content": text}]
            program.append({"messages": list(messages)})
            messages.append({"role": "assistant", "content": line["output"]})
            before = text
        yield program


def _agents(data: Path) -> Iterator[Program]:
    """Yield dialogues from inputs that are plain text with a role before each turn."""
    for session in _sessions(data / "agent_calls/magagent.jsonl.xz"):
        program: Program = []
        for line in session:
            parts = _TURN.split(line["input"])
            turns = list(zip(parts[1::2], parts[2::2], strict=True))
            messages = [{"role": role, "content": text} for role, text in turns]
            if messages:
                program.append({"messages": messages})
        yield program


def _long(data: Path) -> Iterator[Program]:
    """Yield concatenated airline dialogues of about 300 messages."""
    tools = _tools(data).get("travel_booking", [])
    messages: list[Body] = []
    for line in _lines(data / "tau_airline/trajectories.jsonl.xz"):
        messages.extend(line["messages"] if not messages else line["messages"][1:])
        if len(messages) > _LONG:
            yield _calls(messages[:_LONG], tools)
            messages = []


def _restarted(data: Path) -> Iterator[Program]:
    """Yield the last calls of the long dialogues, as a gateway sees them that starts in between."""
    for program in _long(data):
        yield program[-_LAST:]
