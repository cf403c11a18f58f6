"""The engine's endpoints as data: accepted body fields and the end of their streams.

According to vLLM 0.32, chat completions, completions, responses and messages accept `vllm_xargs`
and `cache_salt`; embeddings accept only `cache_salt`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

ErrorShape = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One engine route that runs the model.

    name: label in metrics. xargs, cache_salt: the body accepts these fields. terminals: prefixes of
    the line that ends a stream; () if unknown. errors: format of error bodies. chained: answers
    have ids that later calls refer to (`previous_response_id`). is_text: calls and answers are
    text, so programs can be recognised from their content. keep_alive: what a client may get at any
    time between two events of a stream. media_names: the prompt may name images, audio and video
    (`weft_gateway.engine.media`). prompt: the field that has the prompt.
    """

    name: str
    path: str
    xargs: bool = True
    cache_salt: bool = True
    terminals: tuple[bytes, ...] = (b"data: [DONE]",)
    errors: ErrorShape = "openai"
    chained: bool = False
    is_text: bool = True
    keep_alive: bytes = b": keep-alive\n\n"
    media_names: bool = True
    prompt: str = "messages"


ENDPOINTS: Final = (
    Endpoint("chat", "/v1/chat/completions"),
    Endpoint("completions", "/v1/completions", prompt="prompt"),
    Endpoint(
        "responses",
        "/v1/responses",
        terminals=(
            b"event: response.completed",
            b"event: response.incomplete",
            b"event: response.failed",
        ),
        chained=True,
        prompt="input",
    ),
    Endpoint(
        "messages",
        "/v1/messages",
        terminals=(b"event: message_stop",),
        errors="anthropic",
        keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
        media_names=False,
    ),
    Endpoint(
        "embeddings", "/v1/embeddings", xargs=False, terminals=(), is_text=False, prompt="input"
    ),
)
# Paths that only one of the APIs has, also below `/p/{program}`.
_ANTHROPIC: Final = "/v1/messages"
_OPENAI: Final = (
    "/v1/chat/", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/batches",
)  # fmt: skip
_VERSION: Final = b"anthropic-version"

BY_PATH: Final = {endpoint.path: endpoint for endpoint in ENDPOINTS}


def api_of(path: str, headers: Iterable[tuple[bytes, bytes]]) -> ErrorShape:
    """Return the API that a request uses: by its path, and on shared paths by the header that
    Anthropic's clients send. headers: names in lower case.
    """
    if _ANTHROPIC in path:
        return "anthropic"
    if any(own in path for own in _OPENAI):
        return "openai"
    return "anthropic" if any(name == _VERSION for name, _ in headers) else "openai"
