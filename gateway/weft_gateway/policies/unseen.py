"""Leaves out of prompts what engines leave out: prompts that are equal for the engine are equal for
placement, lineage, token counts, stages and prefills too. The engine gets the body unchanged.

Claude Code begins its system prompt with a billing line, which changes with each session, in older
versions with each call. vLLM 0.32 drops it (`renderers.chat_utils`,
`entrypoints.anthropic.serving`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_BILLING: Final = "x-anthropic-billing-header"


def seen(content: Any) -> Any:
    """Return a system prompt, a text or a list of parts, as engines render it: the same object if
    they leave nothing out.
    """
    if isinstance(content, str):
        return content.partition("\n")[2] if content.startswith(_BILLING) else content
    if not isinstance(content, list) or not any(map(_is_billed, content)):
        return content
    own = [{**one, "text": seen(one["text"])} if _is_billed(one) else one for one in content]
    return [part for part in own if not isinstance(part, dict) or part.get("text") != ""]


def seen_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message in the same way."""
    content = message.get("content")
    own = seen(content) if message.get("role") == "system" else content
    return message if own is content else {**message, "content": own}


def _is_billed(part: Any) -> bool:
    text = part.get("text") if isinstance(part, dict) else None
    return isinstance(text, str) and text.startswith(_BILLING)
