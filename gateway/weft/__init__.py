"""The Python client: a program's session, tool calls as they complete, tools that run early.

    with session("http://127.0.0.1:8080/v1") as s:
        client = s.openai()

Nothing is needed but httpx, and `openai` where a client of it is asked for. Nothing of the server
is imported but the parser that both share. Guide: docs/client.md.
"""

from __future__ import annotations

from weft_gateway.overlap.tool_calls import ToolCall

from weft.agent import Run
from weft.hints import AsyncHints, Hints, Prefill
from weft.sessions import Session, SessionError, session
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
    "session",
]
