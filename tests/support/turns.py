"""Messages of agents' turns that several tests use."""

from __future__ import annotations

# A turn with a tool call, and the tool's result.
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "How far?"}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "far", "arguments": '{"to": "T"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "311 km"}
# A conversation with a message of every role, each several blocks long.
MESSAGES = [
    {"role": "system", "content": "You are an agent. " * 40},
    {"role": "user", "content": "What is the weather in Lyon? " * 10},
    {"role": "assistant", "content": "I will look. " * 10},
    {"role": "tool", "tool_call_id": "c", "content": "Sunny. " * 60},
]
