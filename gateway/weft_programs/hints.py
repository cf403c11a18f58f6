"""The hints of Sutradhara's Table 1 over HTTP: what a program will do next.

Hints never change answers, only speed. Both classes send their requests through a client of
`openai`, with its base URL, key and headers; errors are `openai.APIStatusError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    import openai

Json = Mapping[str, Any]
# A hint that takes longer, or fails once, is not worth a retry.
TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Prefill:
    """A handle of a partial prefill. status: `running`, `done` or `failed` at the time of the
    answer. expires_at: Unix seconds, None if unknown."""

    id: str
    status: str = "running"
    expires_at: float | None = None

    @classmethod
    def from_json(cls, data: Any) -> Prefill:
        """Read the server's answer. Raises ValueError if it is not a prefill."""
        if not isinstance(data, Mapping) or not isinstance(data.get("id"), str):
            raise ValueError(f"not a partial prefill: {data!r:.200}")
        return cls(data["id"], data.get("status", "running"), data.get("expires_at"))


def _tags(spans: Iterable[tuple[int, int, str]]) -> list[dict[str, Any]]:
    return [{"messages": [first, end], "tag": tag} for first, end, tag in spans]


# Options of the methods of `openai` that are not members of the body, and their internal names.
_OPTIONS: Final = {"extra_headers": "headers", "extra_query": "params", "timeout": "timeout"}


def _at(prefill: Prefill | str, *rest: str) -> str:
    name = prefill.id if isinstance(prefill, Prefill) else prefill
    return "/".join(("/hints/prefill", quote(name, safe=""), *rest))


class _Requests:
    """The requests of both classes. client: of `openai`. Each method returns what the client's
    methods return: the answer, or an awaitable of it."""

    def __init__(self, client: Any, session_id: str) -> None:
        self._client = client
        self._quick = client.with_options(max_retries=0, timeout=TIMEOUT_S)
        self._session_id = session_id

    def _post(self, path: str, **fields: Any) -> Any:
        body = {name: value for name, value in fields.items() if value is not None}
        return self._quick.post(path, cast_to=object, body=body)

    def _extend(self, prefill: Prefill | str, call: Json, stream_cls: Any) -> Any:
        from openai.types.chat import ChatCompletion

        body = {k: v for k, v in call.items() if k not in _OPTIONS and k != "extra_body"}
        body |= call.get("extra_body") or {}
        return self._client.with_options(max_retries=0).post(
            _at(prefill, "extend"),
            cast_to=ChatCompletion,
            body=body,
            options={name: call[k] for k, name in _OPTIONS.items() if call.get(k) is not None},
            stream=bool(body.get("stream")),
            stream_cls=stream_cls,
        )

    def _discard(self, prefill: Prefill | str) -> Any:
        return self._quick.delete(_at(prefill), cast_to=object)


class Hints(_Requests):
    """Hints through a blocking client. session_id: the program of tags and priorities."""

    def __init__(self, client: openai.OpenAI, session_id: str) -> None:
        super().__init__(client, session_id)

    def submit_partial_prefill(
        self,
        model: str,
        messages: Iterable[Json],
        tools: Sequence[Json] | None = None,
        ttl_s: float | None = None,
        **fields: Any,
    ) -> Prefill:
        """Prefill the messages that the next call will begin with (Sutradhara 4.1). Returns at
        once, while the prefill runs. ttl_s: the server keeps it at most this long, in seconds.
        fields: other members of the call that change its prompt, like `chat_template_kwargs`."""
        answer = self._post(
            "/hints/prefill", model=model, messages=[*messages], tools=tools, ttl_s=ttl_s, **fields
        )
        return Prefill.from_json(answer)

    def extend_prefill(self, prefill: Prefill | str, **call: Any) -> Any:
        """Make the call: a chat completion (`model`, `messages`, `stream`, ...) whose messages
        begin with the prefilled ones. Returns what `chat.completions.create` returns. Errors: 409
        if the messages begin otherwise, 404 if the handle is unknown or expired."""
        import openai
        from openai.types.chat import ChatCompletionChunk

        return self._extend(prefill, call, openai.Stream[ChatCompletionChunk])

    def discard_prefill(self, prefill: Prefill | str) -> None:
        """Cancel a prefill: the call will not come."""
        self._discard(prefill)

    def tag_kv_blocks(
        self, spans: Iterable[tuple[int, int, str]], ttl_s: float | None = None
    ) -> None:
        """Tag the messages of the program's next calls (Sutradhara 4.3). spans: (first, end, tag),
        without the message `end`; the tag is `SYSTEM_PROMPT`, `USER_QUERY`, `TOOL_OUTPUT` or
        `RESPONSE`. ttl_s: how long the tags hold, in seconds."""
        tags = _tags(spans)
        self._post("/hints/tags", session_id=self._session_id, tags=tags, ttl_s=ttl_s)

    def set_reuse_priority(self, priority: int, ttl_s: float | None = None) -> None:
        """Set how long the program's cached blocks stay: those of a higher priority stay longer.
        ttl_s: how long the priority holds, in seconds."""
        session_id = self._session_id
        self._post("/hints/priority", session_id=session_id, priority=priority, ttl_s=ttl_s)


class AsyncHints(_Requests):
    """Hints through an async client; methods as in Hints."""

    def __init__(self, client: openai.AsyncOpenAI, session_id: str) -> None:
        super().__init__(client, session_id)

    async def submit_partial_prefill(
        self,
        model: str,
        messages: Iterable[Json],
        tools: Sequence[Json] | None = None,
        ttl_s: float | None = None,
        **fields: Any,
    ) -> Prefill:
        """As in Hints."""
        answer = await self._post(
            "/hints/prefill", model=model, messages=[*messages], tools=tools, ttl_s=ttl_s, **fields
        )
        return Prefill.from_json(answer)

    async def extend_prefill(self, prefill: Prefill | str, **call: Any) -> Any:
        """As in Hints."""
        import openai
        from openai.types.chat import ChatCompletionChunk

        return await self._extend(prefill, call, openai.AsyncStream[ChatCompletionChunk])

    async def discard_prefill(self, prefill: Prefill | str) -> None:
        """As in Hints."""
        await self._discard(prefill)

    async def tag_kv_blocks(
        self, spans: Iterable[tuple[int, int, str]], ttl_s: float | None = None
    ) -> None:
        """As in Hints."""
        tags = _tags(spans)
        await self._post("/hints/tags", session_id=self._session_id, tags=tags, ttl_s=ttl_s)

    async def set_reuse_priority(self, priority: int, ttl_s: float | None = None) -> None:
        """As in Hints."""
        session_id = self._session_id
        await self._post("/hints/priority", session_id=session_id, priority=priority, ttl_s=ttl_s)
