"""The engine's endpoints as data: what each takes in its body and how its streams end.

Read from vLLM 0.32: chat completions, completions, responses and messages take `vllm_xargs` and
`cache_salt`; embeddings take `cache_salt` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

ErrorShape = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route of the engine that runs the model.

    name: for metrics. xargs, cache_salt: the body takes these fields. terminals: how the line that
    ends a stream may begin; () where none is known. errors: the shape of error bodies. chained:
    answers have ids that later calls refer to (`previous_response_id`). spoken: calls and answers
    are text, in which programs can be recognised.
    """

    name: str
    path: str
    xargs: bool = True
    cache_salt: bool = True
    terminals: tuple[bytes, ...] = (b"data: [DONE]",)
    errors: ErrorShape = "openai"
    chained: bool = False
    spoken: bool = True


ENDPOINTS: Final = (
    Endpoint("chat", "/v1/chat/completions"),
    Endpoint("completions", "/v1/completions"),
    Endpoint(
        "responses",
        "/v1/responses",
        terminals=(
            b"event: response.completed",
            b"event: response.incomplete",
            b"event: response.failed",
        ),
        chained=True,
    ),
    Endpoint("messages", "/v1/messages", terminals=(b"event: message_stop",), errors="anthropic"),
    Endpoint("embeddings", "/v1/embeddings", xargs=False, terminals=(), spoken=False),
)

BY_PATH: Final = {endpoint.path: endpoint for endpoint in ENDPOINTS}
