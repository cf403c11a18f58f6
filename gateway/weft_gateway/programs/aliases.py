"""The alias table: all names by which clients identify a program. Data, no code.

Rows are tried in order, and names within a row in order. The first name that is present wins. Its
companions supply the thread, its parent and the end of the program, if the same client sends them.
Row 6, no name, is a new program of one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class HeaderAlias:
    """A header that names a program, with its companions ("" if none). from_main: a thread without
    a parent was started by the program's main thread.
    """

    program: bytes
    thread: bytes = b""
    parent: bytes = b""
    final: bytes = b""
    from_main: bool = False


@dataclass(frozen=True, slots=True)
class BodyAlias:
    """A path of keys in the body that names a program. chained: the value is a link of a chain of
    answers, which resolves to the chain's root.
    """

    program: tuple[str, ...]
    thread: tuple[str, ...] = ()
    parent: tuple[str, ...] = ()
    chained: bool = False


HEADERS: Final = (
    # Row 1: Weft's own headers.
    HeaderAlias(b"x-weft-program", b"x-weft-thread", b"x-weft-parent"),
    # Row 2: session headers of agents, SDKs and other gateways.
    HeaderAlias(b"x-session-id", parent=b"x-parent-session-id"),
    HeaderAlias(
        b"x-dynamo-session-id",
        parent=b"x-dynamo-parent-session-id",
        final=b"x-dynamo-session-final",
    ),
    HeaderAlias(
        b"x-claude-code-session-id",
        b"x-claude-code-agent-id",
        b"x-claude-code-parent-agent-id",
        # Claude Code sends an agent id only with a sub-agent's calls. Its main loop has no id and
        # is the implicit parent of sub-agents.
        from_main=True,
    ),
    # Codex: one session for an agent and its sub-agents, one thread each.
    HeaderAlias(b"session-id", b"thread-id", b"x-codex-parent-thread-id"),
    HeaderAlias(b"session_id", b"thread-id", b"x-codex-parent-thread-id"),
    # opencode, and aiperf for all turns of a conversation.
    HeaderAlias(b"x-session-affinity", parent=b"x-parent-session-id"),
    HeaderAlias(b"x-litellm-session-id"),
    HeaderAlias(b"x-litellm-trace-id"),
    HeaderAlias(b"helicone-session-id"),
    HeaderAlias(b"x-bf-session-id"),
    HeaderAlias(b"x-conversation-id"),
    HeaderAlias(b"x-smg-routing-key"),
    # Last: aiperf sends one per conversation, but other clients send one per request.
    HeaderAlias(b"x-correlation-id"),
)

BODY: Final = (
    # Row 3. `user` is not included: it names a person.
    BodyAlias(("session_id",)),
    BodyAlias(("session_params", "session_id")),
    BodyAlias(("metadata", "session_id")),
    BodyAlias(("prompt_cache_key",)),
    BodyAlias(("vllm_xargs", "session_id")),
    BodyAlias(
        ("vllm_xargs", "agentic_context", "program_id"),
        ("vllm_xargs", "agentic_context", "agent_id"),
        ("vllm_xargs", "agentic_context", "parent_program_id"),
    ),
    BodyAlias(
        ("vllm_xargs", "agentic_context", "session_id"),
        ("vllm_xargs", "agentic_context", "agent_id"),
    ),
    BodyAlias(("previous_response_id",), chained=True),
    BodyAlias(("conversation", "id"), chained=True),
    BodyAlias(("conversation",), chained=True),
)

# Names whose companion `parent` is a program, not a thread of the same program.
PARENT_IS_A_PROGRAM: Final = frozenset(
    {
        "x-session-id",
        "x-session-affinity",
        "x-dynamo-session-id",
        "vllm_xargs.agentic_context.program_id",
    }
)

# Row 4, when configured.
TRACEPARENT: Final = b"traceparent"
