"""BFCL's multi-turn tasks: the user's turns and the schemas of the tools.

A task names the tools that solve it, without the times, arguments or results of their calls. The
calls are therefore distributed evenly over the turns, arguments and results follow the schemas, and
times are drawn as in `weft_bench.workloads.traces.tau`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final

from weft_bench.workloads.schema import TraceCall, TraceProgram
from weft_bench.workloads.traces.tau import CUSTOMER_GAP_S, TOOL_GAP_S

FUNCTIONS: Final = "functions"
_SYSTEM: Final = (
    "You carry out tasks with the tools at hand. Call one tool at a time; say when done."
)
# The answer after the last tool of a turn.
_DONE: Final = "That is done. The result is as you asked; tell me what to do next."
# Classes of the benchmark and the names of their interfaces.
APIS: Final = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
# The benchmark's type names in JSON Schema.
_TYPES: Final = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}

Message = Mapping[str, Any]


def read(
    records: Iterable[Mapping[str, Any]], functions: Iterable[Mapping[str, Any]], rng: Random
) -> Iterator[TraceProgram]:
    """Yield one program per task: a call for each tool, and one that ends each turn.

    functions: the tools' schemas, by interface. Raises ValueError for an unknown interface.
    """
    tools: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in functions:
        function = record["function"]
        tools.setdefault(record["api"], {})[function["name"]] = function
    for record in records:
        excluded = set(record.get("excluded_function") or ())
        known: dict[str, Mapping[str, Any]] = {}
        for name in record["involved_classes"]:
            if name not in APIS:
                raise ValueError(f"unknown interface {name}")
            known |= tools.get(APIS[name], {})
        offered = tuple(tool_of(f) for name, f in known.items() if name not in excluded)
        yield TraceProgram(record["id"], tuple(_calls(record, known, offered, rng)))


def tool_of(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a function as a tool of the OpenAI API."""
    kept = {key: function[key] for key in ("name", "description")}
    return {
        "type": "function",
        "function": {**kept, "parameters": _json_schema(function["parameters"])},
    }


def _json_schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _json_schema(value) for key, value in schema.items()}
    # A parameter may have the name "type".
    if isinstance(found.get("type"), str):
        found["type"] = _TYPES.get(found["type"], found["type"])
    return found


def _calls(
    record: Mapping[str, Any],
    known: Mapping[str, Mapping[str, Any]],
    offered: tuple[Mapping[str, Any], ...],
    rng: Random,
) -> Iterator[TraceCall]:
    turns, used = record["question"], record["path"]
    history: tuple[Message, ...] = ({"role": "system", "content": _SYSTEM},)
    for number, turn in enumerate(turns):
        history += tuple(turn)
        begin, end = (len(used) * n // len(turns) for n in (number, number + 1))
        for place in range(begin, end):
            asked, result = _use(used[place].rpartition(".")[2], known, f"call_{place}")
            gap_s = rng.expovariate(1 / TOOL_GAP_S)
            size = len(json.dumps(asked["tool_calls"][0]["function"]))
            yield TraceCall(history, offered, output_bytes=size, gap_s=gap_s, tool_s=(gap_s,))
            history += (asked, result)
        gap_s = rng.expovariate(1 / CUSTOMER_GAP_S) if number + 1 < len(turns) else 0.0
        yield TraceCall(history, offered, output_bytes=len(_DONE), gap_s=gap_s)
        history += ({"role": "assistant", "content": _DONE},)


def _use(
    name: str, known: Mapping[str, Mapping[str, Any]], identity: str
) -> tuple[Message, Message]:
    """Return a tool's call and its result."""
    function = known.get(name, {})
    wanted = function.get("parameters", {}).get("required", ())
    given = function.get("response", {}).get("properties", {})
    called = {"name": name, "arguments": json.dumps({key: f"the {key}" for key in wanted})}
    result = json.dumps({key: str(told.get("description", "")) for key, told in given.items()})
    return (
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": identity, "type": "function", "function": called}],
        },
        {"role": "tool", "tool_call_id": identity, "content": result},
    )
