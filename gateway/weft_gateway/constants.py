"""Values that no operator has to choose. The environment cannot change them; programs that build a
`Gateway` themselves can, such as tests and benches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Times end in `_s` and are in seconds, sizes in `_bytes`."""

    # Clients.
    read_body_bytes: int = 4_194_304
    """Larger bodies are forwarded without analysis: no lineage, no tags."""
    read_body_messages: int = 8192
    """Bodies with more messages and message parts are forwarded without analysis."""
    transcript_bytes: int = 67_108_864
    """What is kept of the messages of open programs, so that a call's cost is that of its new ones;
    about 52 bytes for each message. 0: nothing."""
    body_bytes: int = 0
    """All request bodies and WebSocket messages above 64 KiB that the gateway holds; 0: 64 times
    the setting `max_body_bytes`. One API key has a quarter."""
    max_head_bytes: int = 65_536
    head_timeout_s: float = 20.0
    body_timeout_s: float = 120.0
    """Begins again while at least 16 KiB per second arrive."""
    send_timeout_s: float = 30.0
    """A client that does not read its answer for this time is disconnected."""
    # Agents think and call tools between calls: if the connection closes meanwhile, the next call
    # costs a failed request or a new handshake.
    keep_alive_s: float = 75.0
    max_connections: int = 4096
    max_connections_per_key: int = 1024
    """Connections with a request in progress, and open WebSockets."""
    websocket_idle_s: float = 900.0
    """Without a message from the client or an answer to it."""
    websockets_per_tenant: int = 256
    websocket_message_bytes: int = 8_388_608

    # Replicas.
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 900.0
    """Of a replica that serves no other call either."""
    new_program_wait_s: float = 600.0
    """The longest predicted wait of a new program that is taken. After it, the clients of OpenAI
    and Anthropic give a call up."""
    hold_s: float = 3600.0
    """How long a call waits in the queue of a replica that serves others, and one of a program that
    has begun for a replica."""
    idle_timeout_s: float = 120.0
    lost_after_s: float = 5.0
    """From a replica's refusal of connections until its silent open calls fail."""
    health_interval_s: float = 2.0
    max_answer_bytes: int = 268_435_456
    """Of an answer that is not a stream."""
    attempts_per_call: int = 3
    """Replicas tried per request, while none has read a byte of it."""
    retry_budget: float = 0.1
    """Share of requests that are retried."""
    locality_threshold_tokens: int = 2048
    """Longer prompts go to their program's home (Agentix 4.3)."""
    admission_wait_s: float = 45.0
    """Maximum wait of a call for KV memory."""

    # Programs and features.
    redis_timeout_s: float = 1.0
    """After it, local mode is used."""
    call_lease_s: float = 120.0
    """Calls whose lease is not renewed are closed."""
    max_programs_per_tenant: int = 100_000
    """Named programs. A new one evicts the least recently active."""
    lineage: bool = True
    tag_prompts: bool = True
    auto_prefill: bool = True
    receipts: int = 4096
    """Stored receipts, shared fairly by tenants; 0: none."""
    prefills_per_tenant: int = 256
    prefills: int = 8192

    # Files and batches.
    file_bytes: int = 209_715_200
    """Of one file, and of the requests of a batch."""
    files_per_tenant: int = 10_000
    batches_per_tenant: int = 100
    """Unfinished ones."""
    file_keep_s: float = 30 * 86_400.0
    """Files, ended batches and ended runs are deleted after this time."""
    batch_calls: int = 32
    """Calls of batches and runs in flight at a replica without reported slots."""


CONSTANTS: Final = Constants()
