"""Weft's Python client: sessions, tool calls while they stream, tools that start early, hints.

    from weft import Session

    with Session("http://127.0.0.1:8080/v1") as session:
        client = session.openai()

The names in `__all__` are public; import them from `weft`. The client needs httpx, and `openai` for
`Session.openai` and the methods that use it. It imports only the stream parsers of the server.
Guide: docs/client.md.
"""

from __future__ import annotations

from weft_gateway.overlap.tool_calls import ToolCall

from weft.agent import Run
from weft.hints import AsyncHints, Hints, Prefill
from weft.sessions import Session, SessionError
from weft.stream import ToolCalls
from weft.tools import Tool, ToolRun

__all__ = [
    "AsyncHints",
    "Hints",
    "Prefill",
    "Run",
    "Session",
    "SessionError",
    "Tool",
    "ToolCall",
    "ToolCalls",
    "ToolRun",
]
