"""Weft's Python client: sessions, tool calls while they stream, tools that start early, hints.

    from weft_programs import Session

    with Session("http://127.0.0.1:8080/v1") as session:
        client = session.openai()

The names in `__all__` are public; import them from `weft_programs`. The package needs httpx and
openai, and nothing of the server.
Guide: docs/guides/python-client.md.
"""

from __future__ import annotations

from weft_programs.agent import Run
from weft_programs.hints import AsyncHints, Hints, Prefill
from weft_programs.sessions import Session, SessionError
from weft_programs.stream import ToolCall, ToolCalls
from weft_programs.tools import Tool, ToolRun

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
