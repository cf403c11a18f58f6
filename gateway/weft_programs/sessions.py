"""A session: one program at the gateway, from its start to its end."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx

from weft_programs import agent
from weft_programs.events import CallbackStream
from weft_programs.hints import AsyncHints, Hints
from weft_programs.stream import ToolCall, ToolCalls
from weft_programs.tools import Tool

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

_TIMEOUT_S: Final = 10.0
# A server without sessions. Calls still carry the name, and the program ends when it is idle.
_NO_SESSIONS: Final = (404, 405, 501)


class SessionError(Exception):
    """The server refused to start the session. status: the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Session:
    """One program at the gateway. `with` or `async with` starts it and ends it.

    Entering raises SessionError if the server refuses, and httpx.HTTPError if it cannot be reached.
    id: the program's name; the server chooses one on entering if none is given.
    """

    def __init__(
        self,
        base_url: str,
        *,
        id: str | None = None,
        api_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        slo: str | None = None,
        deadline_s: float | None = None,
        budget: Mapping[str, Any] | None = None,
        keep: bool = False,
    ) -> None:
        """base_url: of the gateway, with or without `/v1`. id: a name, 1 to 256 printable ASCII
        characters; an existing program is joined. api_key: default is the variable OPENAI_API_KEY.
        metadata: the server returns it with the session. slo, deadline_s: its SLO class, and its
        deadline in seconds. budget: what all its calls may use, as `{"tokens": 2_000_000}`. keep:
        leave the program alive on exit, for another process to continue."""
        self.base_url = with_version(base_url)
        self.id = checked(id) if id is not None else ""
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "none")
        self._fields = {
            "metadata": metadata,
            "slo": slo,
            "deadline_s": deadline_s,
            "budget": budget,
        }
        self._keep = keep
        self._known = False  # The server has a session with this id.
        self._clients: list[OpenAI] = []
        self._async_clients: list[AsyncOpenAI] = []

    @property
    def headers(self) -> dict[str, str]:
        """The headers that mark a call of any client as one of the program: `x-weft-program`."""
        return {"x-weft-program": self._started()}

    def openai(self, *, thread: str | None = None, **options: Any) -> OpenAI:
        """An OpenAI client whose calls belong to the program, and to a `thread` of it if given.
        options: those of `openai.OpenAI`. The session closes the client."""
        from openai import OpenAI

        client = OpenAI(**self._options(thread, options))
        self._clients.append(client)
        return client

    def async_openai(self, *, thread: str | None = None, **options: Any) -> AsyncOpenAI:
        """As `openai`, for `openai.AsyncOpenAI`. `async with` closes the client; after a plain
        `with`, close it yourself."""
        from openai import AsyncOpenAI

        client = AsyncOpenAI(**self._options(thread, options))
        self._async_clients.append(client)
        return client

    def hints(self, client: OpenAI | None = None) -> Hints:
        """Hints about the program, sent through a blocking client of this session."""
        return Hints(client or self.openai(), self._started())

    def async_hints(self, client: AsyncOpenAI | None = None) -> AsyncHints:
        """Hints about the program, sent through an async client of this session."""
        return AsyncHints(client or self.async_openai(), self._started())

    def tool_calls(
        self,
        stream: Iterable[Any] | AsyncIterable[Any],
        callback: Callable[[ToolCall], object] | None = None,
        *,
        on_chunk: Callable[[Any], object] | None = None,
    ) -> ToolCalls:
        """Iterate a client's stream and yield its tool calls as they complete; see ToolCalls."""
        return ToolCalls(stream, callback, on_chunk=on_chunk)

    def register_streaming_callback(self, callback: Callable[[ToolCall], object]) -> CallbackStream:
        """Within `async with`, call `callback` with each complete tool call of the program, also
        of calls that other processes make."""
        path = f"{self.base_url}/sessions/{quote(self._started(), safe='')}/events"
        return CallbackStream(path, self._authorization(), callback)

    async def run_tools(
        self,
        *,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool],
        max_turns: int = 8,
        tool_choice: Any = "auto",
        prefill: bool = True,
        prefill_ttl_s: float | None = None,
        on_call: Callable[[ToolCall], object] | None = None,
        on_chunk: Callable[[Any], object] | None = None,
        client: AsyncOpenAI | None = None,
        **options: Any,
    ) -> agent.Run:
        """Call the model and run the tools that it calls, until it answers without a tool call.

        Each tool starts when its call is complete. While tools run, the server prefills the next
        prompt. max_turns: limit of model calls; the last one may call no tool, so that the loop
        ends with an answer. tool_choice: for the first turn; later turns use "auto". prefill: use
        hints, if the server has them. prefill_ttl_s: how long the server keeps a prefill. on_call,
        on_chunk: called with each complete tool call and each chunk. client: one of this session;
        default: a new one. options: further members of the chat completion, like `temperature`.
        Raises the client's errors; the model sees the errors of tools.
        """
        if max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, got {max_turns}")
        if not {"n", "stream"}.isdisjoint(options):
            raise ValueError("the loop sets n and stream itself")
        async with contextlib.AsyncExitStack() as stack:
            if client is None:
                from openai import AsyncOpenAI

                own = AsyncOpenAI(**self._options(None, {}))
                client = await stack.enter_async_context(own)
            hints = agent.NextPrefill(self.async_hints(client), prefill_ttl_s) if prefill else None
            loop = agent.Loop(client, tools, hints, on_call, on_chunk)
            return await loop.run({"model": model, **options}, messages, tool_choice, max_turns)

    def __enter__(self) -> Self:
        with httpx.Client(timeout=_TIMEOUT_S) as http:
            self._start(http.post(f"{self.base_url}/sessions", **self._new()))
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self._clients = []
        if self._ends():
            with contextlib.suppress(httpx.HTTPError), httpx.Client(timeout=_TIMEOUT_S) as http:
                http.delete(self._address(), headers=self._authorization())

    async def __aenter__(self) -> Self:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S) as http:
            self._start(await http.post(f"{self.base_url}/sessions", **self._new()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        for other in self._async_clients:
            await other.close()
        self._clients, self._async_clients = [], []
        if self._ends():
            with contextlib.suppress(httpx.HTTPError):
                async with httpx.AsyncClient(timeout=_TIMEOUT_S) as http:
                    await http.delete(self._address(), headers=self._authorization())

    def _new(self) -> dict[str, Any]:
        fields = {"id": self.id or None, **self._fields}
        body = {name: value for name, value in fields.items() if value is not None}
        return {"json": body, "headers": self._authorization()}

    def _start(self, answer: httpx.Response) -> None:
        if answer.status_code in _NO_SESSIONS:
            self.id = self.id or f"sess-{secrets.token_hex(12)}"
            return
        if answer.is_error:
            raise SessionError(answer.status_code, answer.text[:500])
        try:
            self.id = checked(answer.json()["id"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SessionError(answer.status_code, "the answer is not a session") from error
        self._known = True

    def _ends(self) -> bool:
        """Whether to end the session at the server. A failure to do so is not an error: the server
        ends an idle program by itself."""
        ends = self._known and not self._keep
        self._known = False
        return ends

    def _address(self) -> str:
        return f"{self.base_url}/sessions/{quote(self.id, safe='')}"

    def _authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._key}"}

    def _options(self, thread: str | None, options: dict[str, Any]) -> dict[str, Any]:
        headers = self.headers | ({"x-weft-thread": checked(thread)} if thread else {})
        headers |= options.get("default_headers") or {}
        defaults = {"base_url": self.base_url, "api_key": self._key}
        return defaults | options | {"default_headers": headers}

    def _started(self) -> str:
        if not self.id:
            raise RuntimeError("the session has not been started: use `with` or `async with`")
        return self.id


def with_version(base_url: str) -> str:
    """The base URL with `/v1`, as OpenAI clients need it. Raises ValueError unless it is HTTP."""
    address = base_url.rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"base_url must begin with http:// or https://, got {base_url!r}")
    return address if parts.path.endswith("/v1") else f"{address}/v1"


def checked(name: str) -> str:
    """The name, if a header can carry it unchanged; otherwise raises ValueError."""
    if not (
        name.isascii() and name.isprintable() and 0 < len(name) <= 256 and name == name.strip()
    ):
        raise ValueError(f"an id is 1 to 256 printable ASCII characters, got {name!r:.300}")
    return name
