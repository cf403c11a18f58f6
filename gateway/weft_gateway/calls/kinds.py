"""The kind of a call's program and the stage of the call, by which forecasts are learned."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from weft_gateway.model.hint import Hints
from weft_gateway.policies.unseen import seen

# Names of a tenant that are in use, pairs of a kind and a stage; and how long one is in use.
MAX_NAMES: Final = 256
_IN_USE_S: Final = 3600.0
_MAX_TENANTS: Final = 1024
# Characters of a system prompt that tell stages apart.
_CHARACTERS: Final = 1024
_FULL: Final = f"ignored: the key uses {MAX_NAMES} kinds and stages already"


class NamedKinds:
    """The kinds and stages that clients have named. Their number per tenant is limited."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, OrderedDict[tuple[str, str], float]] = OrderedDict()

    def admitted(self, tenant: str, hints: Hints, now_s: float) -> Hints:
        """Return a call's hints, without its names if the tenant uses too many."""
        if self.admits(tenant, hints.kind or "", hints.stage or "", now_s):
            return hints
        return _nameless(hints)

    def admits(self, tenant: str, kind: str, stage: str, now_s: float) -> bool:
        """Whether the tenant may use these names, "" for none. It uses them from now on."""
        own = self._names.setdefault(tenant, OrderedDict())
        self._names.move_to_end(tenant)
        if len(self._names) > _MAX_TENANTS:
            self._names.popitem(last=False)
        name = kind, stage
        if name not in own and len(own) >= MAX_NAMES:
            oldest = next(iter(own))
            if own[oldest] > now_s - _IN_USE_S:
                return False
            del own[oldest]
        own[name] = now_s
        own.move_to_end(name)
        return True


def _nameless(hints: Hints) -> Hints:
    fates = []
    for text in hints.fates:
        name, _, fate = text.partition("=")
        dropped = name.endswith(("kind", "stage")) and fate.startswith("applied")
        fates.append(f"{name}={_FULL}" if dropped else text)
    return replace(hints, kind=None, stage=None, fates=tuple(fates))


def stage_of(body: Mapping[str, Any]) -> str:
    """Return what tells the stage of a call whose client has not named it: a digest of the leading
    system prompt, the number of tools, and the names of the first and the last one. It differs
    between processes.
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
