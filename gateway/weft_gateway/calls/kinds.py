"""The stage of a call, by which forecasts are learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weft_gateway.policies.unseen import seen

# Characters of a system prompt that tell stages apart.
_CHARACTERS: Final = 1024


def stage_of(body: Mapping[str, Any]) -> str:
    """Return what tells the stage of a call: a digest of the leading system prompt, the number of
    tools, and the names of the first and the last one. It differs between processes.
    """
    messages, tools = body.get("messages"), body.get("tools")
    first = messages[0] if isinstance(messages, list) and messages else None
    system = ""
    if isinstance(first, dict) and first.get("role") in ("system", "developer"):
        system = _text(first.get("content"))
    parts: tuple[Any, ...] = (system, _text(body.get("system")), _text(body.get("instructions")))
    if isinstance(tools, list) and tools:
        parts += len(tools), _name(tools[0]), _name(tools[-1])
    return f"{hash(parts):x}"


def _name(tool: Any) -> str:
    """Return the name of a tool, "" without one."""
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("name")
    return name if isinstance(name, str) else ""


def _text(content: Any) -> str:
    """Return the beginning of a system prompt."""
    content = seen(content)
    if isinstance(content, str):
        return content[:_CHARACTERS]
    if isinstance(content, list) and content and isinstance(content[0], dict):
        return _text(content[0].get("text"))
    return ""
