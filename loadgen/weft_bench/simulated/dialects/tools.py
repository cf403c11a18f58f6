"""Tool calls that a client forces, with arguments that match the tool's schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. arguments: JSON."""

    name: str
    arguments: str


def forced(body: Mapping[str, Any]) -> ToolCall | None:
    """Return the call that `tool_choice` forces in any of the APIs, or None if it forces none.

    Raises ValueError for an unknown tool.
    """
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        named = choice.get("function")
        name = (named if isinstance(named, Mapping) else choice).get("name")
    else:
        kind, name = choice, None
    if name is None and kind not in ("required", "any"):
        return None
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and name in (None, function.get("name")):
            schema = function.get("parameters") or function.get("input_schema") or {}
            arguments = example(schema)
            if not isinstance(arguments, dict):
                arguments = {}
            return ToolCall(str(function.get("name")), orjson.dumps(arguments).decode())
    raise ValueError(f"tool_choice names no tool: {name or kind!r}")


def example(schema: Any, depth: int = 0) -> Any:
    """Return a value that a JSON schema allows. An object has its required properties only.

    References, patterns and conditions are not supported.
    """
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return None
    for name in ("enum", "examples"):
        if isinstance(schema.get(name), list) and schema[name]:
            return schema[name][0]
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return example(schema[name][0], depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0] if kind else "null"
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: example(properties.get(name, {}), depth + 1) for name in _required(schema)}
    if kind == "array":
        return [example(schema.get("items", {}), depth + 1)] * int(schema.get("minItems", 0))
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "boolean":
        return True
    return None if kind == "null" else "simulated".ljust(int(schema.get("minLength", 0)), ".")


def _required(schema: Mapping[str, Any]) -> list[str]:
    found = schema.get("required")
    return [str(name) for name in found] if isinstance(found, list) else []
