"""A program's life seen from its client: started, named in every call, ended."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx
from weft_gateway.overlap.tool_calls import ToolCall

from weft import agent
from weft.events import CallbackStream
from weft.hints import AsyncHints, Hints
from weft.stream import ToolCalls
from weft.tools import Tool

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

_TIMEOUT_S: Final = 10.0
# A server without sessions: calls are still marked, and the program ends by itself.
_NO_SESSIONS: Final = (404, 405, 501)


class SessionError(Exception):
    """The server did not start the session. status: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Session:
    """One program. `with` or `async with` starts and ends it; see `session`.

    id: the program's name, set on entering where none was given. headers: those that mark a call as
    the program's, for any client.
    """

    def __init__(
        self,
        base_url: str,
        *,
        id: str | None = None,
        api_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        keep: bool = False,
    ) -> None:
        self.base_url = with_version(base_url)
        self.id = checked(id) if id is not None else ""
        self._key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "none")
        self._metadata = metadata
        self._keep = keep
        self._known = False  # The server keeps a session under this name.
        self._clients: list[OpenAI] = []
        self._async_clients: list[AsyncOpenAI] = []

    @property
    def headers(self) -> dict[str, str]:
        """For calls of any client: `x-weft-program`."""
        return {"x-weft-program": self._started()}

    def openai(self, *, thread: str | None = None, **options: Any) -> OpenAI:
        """An OpenAI client whose calls belong to the program, and to a `thread` of it where one is
        named. options: those of `openai.OpenAI`. Closed with the session."""
        from openai import OpenAI

        client = OpenAI(**self._options(thread, options))
        self._clients.append(client)
        return client

    def async_openai(self, *, thread: str | None = None, **options: Any) -> AsyncOpenAI:
        """The same with `openai.AsyncOpenAI`. Closed at the end of `async with`; after a plain
        `with` it is the caller's to close."""
        from openai import AsyncOpenAI

        client = AsyncOpenAI(**self._options(thread, options))
        self._async_clients.append(client)
        return client

    def hints(self, client: OpenAI | None = None) -> Hints:
        """Table 1's calls, sent through a client of this session."""
        return Hints(client or self.openai(), self._started())

    def async_hints(self, client: AsyncOpenAI | None = None) -> AsyncHints:
        """The same for a client that is not blocking."""
        return AsyncHints(client or self.async_openai(), self._started())

    def tool_calls(
        self,
        stream: Iterable[Any] | AsyncIterable[Any],
        callback: Callable[[ToolCall], object] | None = None,
        **options: Any,
    ) -> ToolCalls:
        """Yields the tool calls of a client's own stream as they complete: see ToolCalls."""
        return ToolCalls(stream, callback, **options)

    def register_streaming_callback(self, callback: Callable[[ToolCall], object]) -> CallbackStream:
        """Within `async with`, `callback` is called with each complete tool call of any call of the
        program, whoever reads its answer."""
        path = f"{self.base_url}/sessions/{quote(self._started(), safe='')}/events"
        return CallbackStream(path, self._authorization(), callback)

    async def run_tools(
        self,
        *,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool],
        client: AsyncOpenAI | None = None,
        **options: Any,
    ) -> agent.Run:
        """An agent's loop that starts each tool when its call is complete, and has the next prompt
        prefilled while tools run: see agent.run."""
        if client is not None:
            return await agent.run(client, self.id, model, messages, tools, **options)
        from openai import AsyncOpenAI

        async with AsyncOpenAI(**self._options(None, {})) as own:
            return await agent.run(own, self.id, model, messages, tools, **options)

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
        fields = {"id": self.id or None, "metadata": self._metadata}
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
            raise SessionError(answer.status_code, "the answer is no session") from error
        self._known = True

    def _ends(self) -> bool:
        """Whether the session is to be ended at the server. That the server is away then is no
        reason to fail: what the program wanted is done, and the reaper ends it."""
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


def session(
    base_url: str,
    *,
    id: str | None = None,
    api_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    keep: bool = False,
) -> Session:
    """A program at the gateway at `base_url` (with or without `/v1`).

    id: a name of one's own, printable ASCII of at most 256 bytes; one that exists is joined.
    api_key: or else the variable OPENAI_API_KEY. metadata: given back by the server. keep: do not
    end the program on leaving, so that another process can go on with it. Raises SessionError where
    the server refuses, httpx.HTTPError where it cannot be reached.
    """
    return Session(base_url, id=id, api_key=api_key, metadata=metadata, keep=keep)


def with_version(base_url: str) -> str:
    """The address that an OpenAI client wants: ending in `/v1`. ValueError if it is none."""
    address = base_url.rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"base_url must begin with http:// or https://, got {base_url!r}")
    return address if parts.path.endswith("/v1") else f"{address}/v1"


def checked(name: str) -> str:
    """A name that a header can carry unchanged. ValueError if it is none."""
    if not (
        name.isascii() and name.isprintable() and 0 < len(name) <= 256 and name == name.strip()
    ):
        raise ValueError(f"an id is 1 to 256 printable ASCII characters, got {name!r:.300}")
    return name
