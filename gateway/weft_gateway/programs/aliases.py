"""The table of names: what each name that clients send means to them, and what it decides. Data.

Identity is evidence: only a name of one session, conversation or agent run decides the program.
Rows are tried in order, headers before the body, and the first name that is present wins. Its
companions supply the thread, its parent and the end of the program, if the same client sends them.
A call without such a name belongs to the program whose messages it continues (lineage).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# A header in lower case, or a path of keys in the body.
Where = bytes | tuple[str, ...]


class Decides(StrEnum):
    """PLACEMENT: a hint where a call goes whose prompt is not read. NOTHING: not used."""

    PROGRAM = "program"
    PLACEMENT = "placement"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Name:
    """A name that clients send.

    means: to these clients. thread, parent, final: its companions. above: a parent that is another
    program. from_main: a thread without a parent was started by the program's main thread. chained:
    a link of a chain of answers, which resolves to the chain's root.
    """

    where: Where
    means: str
    decides: Decides = Decides.PROGRAM
    thread: Where | None = None
    parent: Where | None = None
    above: Where | None = None
    final: bytes = b""
    from_main: bool = False
    chained: bool = False

    @property
    def text(self) -> str:
        """The name as documents and receipts show it."""
        return self.where.decode() if isinstance(self.where, bytes) else ".".join(self.where)


THREAD: Final = b"x-weft-thread"
_PLACE: Final = Decides.PLACEMENT
_ABOVE: Final = b"x-parent-session-id"
_CODEX: Final = "Codex: a session of an agent and its sub-agents, which are threads"
_CODEX_PARENT: Final = b"x-codex-parent-thread-id"
_CHAIN: Final = "OpenAI's Responses API: the answer or conversation that the call continues"
_CONTEXT: Final = ("vllm_xargs", "agentic_context")
_AGENT: Final = (*_CONTEXT, "agent_id")

HEADERS: Final = (
    Name(b"x-weft-program", "Weft: the program", thread=THREAD, parent=b"x-weft-parent"),
    Name(b"x-session-id", "opencode, OpenRouter, vLLM, vllm-router: one session", above=_ABOVE),
    Name(
        b"x-dynamo-session-id",
        "NVIDIA Dynamo; aiperf on request: one session",
        above=b"x-dynamo-parent-session-id",
        final=b"x-dynamo-session-final",
    ),
    Name(
        b"x-claude-code-session-id",
        "Claude Code: a session. Only sub-agents have an agent id",
        thread=b"x-claude-code-agent-id",
        parent=b"x-claude-code-parent-agent-id",
        from_main=True,
    ),
    Name(b"session-id", _CODEX, thread=b"thread-id", parent=_CODEX_PARENT),
    Name(b"session_id", _CODEX, thread=b"thread-id", parent=_CODEX_PARENT),
    Name(b"x-opencode-session", "opencode, for providers called `opencode...`", above=_ABOVE),
    Name(b"x-litellm-session-id", "LiteLLM: the calls of one agent run"),
    Name(b"x-litellm-trace-id", "LiteLLM: the calls of one agent run"),
    Name(b"helicone-session-id", "Helicone: one agent workflow or conversation"),
    Name(b"x-bf-session-id", "Bifrost: a conversation or an agent run"),
    Name(b"x-conversation-id", "applications: one conversation"),
    Name(b"x-session-affinity", "opencode: the session; nanobot: the client's process", _PLACE),
    Name(b"x-smg-routing-key", "SGLang's gateway: a session, a person or a workload", _PLACE),
    Name(b"x-correlation-id", "most clients: one request; aiperf: one conversation", _PLACE),
    Name(b"x-request-id", "one request; its receipt has this id", Decides.NOTHING),
    Name(b"traceparent", "W3C Trace Context: one request", Decides.NOTHING),
)

BODY: Final = (
    Name(("session_id",), "vLLM, OpenRouter: one session"),
    Name(("session_params", "session_id"), "SGLang: a session whose KV the server keeps"),
    Name(("metadata", "session_id"), "LiteLLM, Langfuse: one conversation"),
    Name(("vllm_xargs", "session_id"), "vLLM: one session"),
    Name(
        (*_CONTEXT, "program_id"),
        "vLLM's agent context: the program",
        thread=_AGENT,
        above=(*_CONTEXT, "parent_program_id"),
    ),
    Name((*_CONTEXT, "session_id"), "vLLM's agent context: a session", thread=_AGENT),
    Name(("previous_response_id",), _CHAIN, chained=True),
    Name(("conversation", "id"), _CHAIN, chained=True),
    Name(("conversation",), _CHAIN, chained=True),
    Name(
        ("prompt_cache_key",),
        "OpenAI: prompts that begin alike, of any number of conversations; Codex, opencode: the "
        "session",
        _PLACE,
    ),
    Name(("user",), "OpenAI: a person", Decides.NOTHING),
    Name(("safety_identifier",), "OpenAI: a person", Decides.NOTHING),
    Name(("metadata", "user_id"), "Anthropic: a person", Decides.NOTHING),
)
