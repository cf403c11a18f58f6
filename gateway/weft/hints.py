"""Sutradhara's Table 1 over HTTP: what a program can tell Weft of what it will do next.

Hints only help: without them, or with wrong ones, answers are the same. Both classes send through a
client of `openai`, so that its address, key, headers and errors (`openai.APIStatusError`) hold. The
fifth call of the table, `register_streaming_callback`, is the session's, since it is no request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    import openai

Json = Mapping[str, Any]
# Hints are worth no waiting and no second try.
TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Prefill:
    """A handle of a partial prefill. expires_at: Unix seconds, None where the server did not say.
    status: `running`, `done` or `failed`, as of the answer."""

    id: str
    status: str = "running"
    expires_at: float | None = None

    @classmethod
    def from_json(cls, data: Any) -> Prefill:
        """Read the server's answer. ValueError if it is none."""
        if not isinstance(data, Mapping) or not isinstance(data.get("id"), str):
            raise ValueError(f"this is no partial prefill: {data!r:.200}")
        return cls(data["id"], data.get("status", "running"), data.get("expires_at"))


def _tags(spans: Iterable[tuple[int, int, str]]) -> list[dict[str, Any]]:
    return [{"messages": [first, end], "tag": tag} for first, end, tag in spans]


# What methods of `openai` take beside the fields of a request, and what the client calls it.
_OPTIONS: Final = {"extra_headers": "headers", "extra_query": "params", "timeout": "timeout"}


def _split(call: Json) -> tuple[dict[str, Any], Any]:
    """The body and the options of a call that is written as for `chat.completions.create`."""
    body = {k: v for k, v in call.items() if k not in _OPTIONS and k != "extra_body"}
    options = {name: call[k] for k, name in _OPTIONS.items() if call.get(k) is not None}
    return body | dict(call.get("extra_body") or {}), options


def _without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _at(prefill: Prefill | str, *rest: str) -> str:
    name = prefill.id if isinstance(prefill, Prefill) else prefill
    return "/".join(("/hints/prefill", quote(name, safe=""), *rest))


class Hints:
    """The calls for a blocking client. session_id: the program that tags and priorities are for."""

    def __init__(self, client: openai.OpenAI, session_id: str) -> None:
        self._client = client
        self._quick = client.with_options(max_retries=0, timeout=TIMEOUT_S)
        self._session_id = session_id

    def submit_partial_prefill(
        self,
        model: str,
        messages: Iterable[Json],
        tools: Sequence[Json] | None = None,
        ttl_s: float | None = None,
        **fields: Any,
    ) -> Prefill:
        """Have the messages prefilled that the next call is going to begin with, and kept for at
        most `ttl_s` seconds (4.1). fields: what else of the call decides how its prompt is written,
        as `chat_template_kwargs`. Returns at once: the prefill runs on."""
        body = _without_none(
            model=model, messages=list(messages), tools=tools, ttl_s=ttl_s, **fields
        )
        return Prefill.from_json(self._quick.post("/hints/prefill", cast_to=object, body=body))

    def extend_prefill(self, prefill: Prefill | str, **call: Any) -> Any:
        """The call itself: a chat completion (`model`, `messages`, `stream`, ...) whose messages
        begin with those announced. The answer is that of `chat.completions.create`. Errors: 409 for
        other messages than announced, 404 for a handle that is unknown or has expired."""
        import openai
        from openai.types.chat import ChatCompletion, ChatCompletionChunk

        body, options = _split(call)
        return self._client.with_options(max_retries=0).post(
            _at(prefill, "extend"),
            cast_to=ChatCompletion,
            body=body,
            options=options,
            stream=bool(body.get("stream")),
            stream_cls=openai.Stream[ChatCompletionChunk],
        )

    def discard_prefill(self, prefill: Prefill | str) -> None:
        """The announced call will not come: what was kept for it may go."""
        self._quick.delete(_at(prefill), cast_to=object)

    def tag_kv_blocks(
        self, spans: Iterable[tuple[int, int, str]], ttl_s: float | None = None
    ) -> None:
        """Say what messages hold (4.3): (first, end, tag) of each span of them, end excluded, tag
        as `SYSTEM_PROMPT`, `USER_QUERY`, `TOOL_OUTPUT` or `RESPONSE`. For the program's next calls,
        at most `ttl_s` seconds long."""
        body = _without_none(session_id=self._session_id, tags=_tags(spans), ttl_s=ttl_s)
        self._quick.post("/hints/tags", cast_to=object, body=body)

    def set_reuse_priority(self, priority: int, ttl_s: float | None = None) -> None:
        """How much the program's cached blocks are worth beside those of others: higher stays
        longer. It ends after `ttl_s` seconds."""
        body = _without_none(session_id=self._session_id, priority=priority, ttl_s=ttl_s)
        self._quick.post("/hints/priority", cast_to=object, body=body)


class AsyncHints:
    """The same calls for a client that is not blocking."""

    def __init__(self, client: openai.AsyncOpenAI, session_id: str) -> None:
        self._client = client
        self._quick = client.with_options(max_retries=0, timeout=TIMEOUT_S)
        self._session_id = session_id

    async def submit_partial_prefill(
        self,
        model: str,
        messages: Iterable[Json],
        tools: Sequence[Json] | None = None,
        ttl_s: float | None = None,
        **fields: Any,
    ) -> Prefill:
        """As in Hints."""
        body = _without_none(
            model=model, messages=list(messages), tools=tools, ttl_s=ttl_s, **fields
        )
        answer = await self._quick.post("/hints/prefill", cast_to=object, body=body)
        return Prefill.from_json(answer)

    async def extend_prefill(self, prefill: Prefill | str, **call: Any) -> Any:
        """As in Hints."""
        import openai
        from openai.types.chat import ChatCompletion, ChatCompletionChunk

        body, options = _split(call)
        return await self._client.with_options(max_retries=0).post(
            _at(prefill, "extend"),
            cast_to=ChatCompletion,
            body=body,
            options=options,
            stream=bool(body.get("stream")),
            stream_cls=openai.AsyncStream[ChatCompletionChunk],
        )

    async def discard_prefill(self, prefill: Prefill | str) -> None:
        """As in Hints."""
        await self._quick.delete(_at(prefill), cast_to=object)

    async def tag_kv_blocks(
        self, spans: Iterable[tuple[int, int, str]], ttl_s: float | None = None
    ) -> None:
        """As in Hints."""
        body = _without_none(session_id=self._session_id, tags=_tags(spans), ttl_s=ttl_s)
        await self._quick.post("/hints/tags", cast_to=object, body=body)

    async def set_reuse_priority(self, priority: int, ttl_s: float | None = None) -> None:
        """As in Hints."""
        body = _without_none(session_id=self._session_id, priority=priority, ttl_s=ttl_s)
        await self._quick.post("/hints/priority", cast_to=object, body=body)
