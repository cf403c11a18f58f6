"""The LLM calls of a run over HTTP: OpenAI Chat Completions at a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from itertools import cycle
from random import Random
from time import monotonic, time
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import httpx
import orjson

from weft_run.io.clients import MOST_PORT, new_client
from weft_run.io.errors import CallFailed, JobError
from weft_run.io.retry import may_pass, model_is_away, pause
from weft_run.language.requests import ChatRequest, LlmRequest
from weft_run.plan.commands import Failure, Usage, Work
from weft_run.plan.costs import EngineCosts, costs_of
from weft_run.yaml_errors import nearest

log = logging.getLogger(__name__)

# An answer of a call is some tokens; a larger one is an error of the server.
_MAX_BYTES: Final = 16_777_216
# More tokens than that are no count of one call.
_MAX_TOKENS: Final = 1 << 40
_CONNECT_S: Final = 10.0
# A server that is away, or a URL that has none.
_NO_ANSWER: Final = (httpx.HTTPError, httpx.InvalidURL, UnicodeError, ExceptionGroup)
_BAD_ANSWER: Final = "bad_answer"
_MESSAGE: Final = 500
_POOLS: Final = 8
_PROGRAM: Final = "x-weft-program"
_REFUSED_FOR_S: Final = 1800.0
# The number of attempts whose pause is the longest one while no engine has begun: about 8 s.
_LONGEST_WAIT: Final = 5


class Server(NamedTuple):
    """A replica of the gateway, and the program of the run's calls to it. replica: its name, "" for
    a server that is no gateway. slots: calls that it runs at once, 0 if unknown. models: those that
    it serves, None if unknown. costs: of its steps, None if unknown.
    """

    program: str
    replica: str = ""
    slots: int = 0
    models: frozenset[str] | None = None
    costs: EngineCosts | None = None


class Answer(NamedTuple):
    """The answer of a call. usage: 0 tokens if the server reports none. whole: the JSON of the
    answer to a `ChatRequest`; its text is empty. made: False if another run has made the call, and
    has its tokens.
    """

    text: str
    usage: Usage
    whole: Any = None
    made: bool = True


class Caller(Protocol):
    """Makes LLM calls."""

    async def call(self, work: Work, refused: Callable[[], None]) -> Answer:
        """Make a call. refused: called if the server takes no call now (429, 503, or no
        connection). Raises CallFailed.
        """
        ...

    async def aclose(self) -> None:
        """End the run's program and close connections."""
        ...


class _Refused(Exception):
    """One attempt has failed. retry_after: the header. unread: no engine has begun with the
    call.
    """

    def __init__(
        self,
        code: str,
        message: str,
        passes: bool,
        retry_after: str | None = None,
        unread: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.passes = passes
        self.retry_after = retry_after
        self.unread = unread


class HttpCaller:
    """Calls a gateway. All calls to a replica are of one program, so that the scheduler treats the
    run as one job beside other programs, and each row is a thread. Each program has a window, and
    its calls ask for its replica.
    """

    def __init__(
        self, gateway: str, program: str, *, api_key: str = "", timeout_s: float = 600.0
    ) -> None:
        """gateway: base URL, with or without /v1. timeout_s: of one attempt."""
        self._base = gateway.rstrip("/").removesuffix("/v1")
        self._program = program
        self._servers = {program: Server(program)}
        self._random = Random()
        self._away = False
        # Whether the server lists the models of the run.
        self._has_models = False
        headers = [(b"content-type", b"application/json")]
        self._wrong_key = any(one <= " " or one == "\x7f" for one in api_key)
        if api_key:
            # Other text than ASCII is no key: the server refuses it.
            key = api_key.encode(errors="surrogateescape")
            headers.append((b"authorization", b"Bearer " + key))
        # The window of calls in flight limits the connections. A pool looks at all its connections
        # for each request, so several small pools take less time than a large one.
        timeout = httpx.Timeout(timeout_s, connect=_CONNECT_S, pool=None)
        tls = not self._base.lower().startswith("http:")
        self._clients = [new_client(timeout, headers, tls=tls) for _ in range(_POOLS)]
        self._client = self._clients[0]
        self._next = cycle(self._clients)

    async def only_model(self, place: str) -> str:
        """Return the model of a gateway that serves one. place: of an operator without a model.
        Raises JobError.
        """
        names = await self._models()
        self._has_models = True
        if len(names) != 1:
            known = ", ".join(names) or "none"
            raise JobError(f"{place}: no model is named, and {self._base} serves: {known}")
        return names[0]

    async def check_models(self, wanted: Mapping[str, str]) -> None:
        """Raise JobError if the server lists its models, and one of these is not among them: each
        call to it would fail. wanted: the place of its text by model.
        """
        names = await self._models()
        self._has_models = bool(names)
        unknown = [name for name in wanted if name not in names]
        if names and unknown:
            raise JobError(
                "\n".join(
                    f"{wanted[name]}: {self._base} does not serve the model {name!r}"
                    f"{nearest(name, names)}"
                    for name in unknown
                )
            )

    async def _models(self) -> list[str]:
        cards = (await self._get("/v1/models")).get("data")
        listed = cards if isinstance(cards, list) else ()
        return [str(card.get("id")) for card in listed if isinstance(card, dict)]

    async def servers(self) -> list[Server]:
        """Return the healthy replicas that take new programs; their programs are the windows of
        the calls. One for a server that is no gateway. Raises JobError if the server does not
        answer.
        """
        able = able_replicas(await self._get("/health"))
        found = [_server(one, self._name(number)) for number, one in enumerate(able)]
        found = found or [Server(self._program)]
        self._servers = {one.program: one for one in found}
        return found

    def _name(self, number: int) -> str:
        return f"{self._program}-{number + 1}" if number else self._program

    async def _get(self, path: str) -> dict[str, Any]:
        if self._wrong_key:
            raise JobError("OPENAI_API_KEY contains a space or a line break, which no key has")
        try:
            url = httpx.URL(f"{self._base}{path}")
            if (url.port or 0) > MOST_PORT:
                # The connection would report it as an error of a task group.
                raise httpx.InvalidURL(f"{url.port} is no port")
            headers = {_PROGRAM: self._program}
            answer = await self._client.get(url, headers=headers, timeout=_CONNECT_S)
            if answer.status_code in (401, 403):
                why = _message(answer.content) or answer.reason_phrase
                raise JobError(f"{self._base} refuses the key in OPENAI_API_KEY: {why}")
            if answer.status_code == 404 and path == "/v1/models":
                raise JobError(f"{self._base} has no {path}: is the URL that of an OpenAI server?")
            parsed = orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            parsed = {}
        except _NO_ANSWER as error:
            raise JobError(f"{self._base} cannot be used: {_reason(error)}") from None
        return parsed if isinstance(parsed, dict) else {}

    async def call(self, work: Work, refused: Callable[[], None]) -> Answer:
        """Make a call; an error that may pass is repeated. If no engine has begun with the call,
        because the server refuses it (429, 503) or is away, the attempt does not count for half an
        hour. Raises CallFailed.
        """
        assert isinstance(work.request, LlmRequest)
        raw, made, tries, begun_s = encoded(work.request), 0, 0, monotonic()
        while True:
            made, tries = made + 1, tries + 1
            try:
                answer = await self._once(raw, work)
                self._away = False
                return answer
            except _Refused as error:
                if error.unread:
                    refused()
                    self._log_outage(error)
                    made -= monotonic() - begun_s < _REFUSED_FOR_S
                if not error.passes or made >= work.attempts:
                    failure = Failure(error.code, str(error), made)
                    raise CallFailed(failure) from None
                attempt = min(tries, _LONGEST_WAIT) if error.unread else made
                wait_s = pause(attempt, error.retry_after, time(), self._random)
            await asyncio.sleep(wait_s)

    async def _once(self, raw: bytes, work: Work) -> Answer:
        url = f"{self._base}/v1/chat/completions"
        server = self._servers.get(work.window) or Server(self._program)
        headers = {
            _PROGRAM: server.program,
            "x-weft-thread": f"row-{work.row}",
            # Rows can wait for the calls of other clients.
            "x-weft-batch": "1",
        }
        if server.replica:
            headers["x-weft-replica"] = server.replica
        try:
            async with next(self._next).stream("POST", url, content=raw, headers=headers) as answer:
                body, status = await _body(answer), answer.status_code
                if status == 200:
                    return read_answer(body, whole=isinstance(work.request, ChatRequest))
                why = _message(body) or answer.reason_phrase
                if status == 401:
                    # No call can succeed. The journal keeps the finished work.
                    raise JobError(f"{self._base} refuses the key in OPENAI_API_KEY: {why}")
                away = self._has_models and model_is_away(status, body)
                # A refusal that no repetition changes, such as a budget that is used up.
                final = answer.headers.get("x-should-retry") == "false"
                raise _Refused(
                    f"http_{status}",
                    why,
                    (may_pass(status) or away) and not final,
                    answer.headers.get("retry-after"),
                    unread=away or (status in (429, 503) and not final),
                )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _Refused("connection", _reason(error), passes=True, unread=True) from None
        except httpx.TimeoutException as error:
            raise _Refused("timeout", _reason(error), passes=True) from None
        except httpx.HTTPError as error:
            raise _Refused("connection", _reason(error), passes=True) from None
        except CallFailed as error:
            if error.failure.code != _BAD_ANSWER:
                raise
            raise _Refused(_BAD_ANSWER, error.failure.message, passes=True) from None

    def _log_outage(self, error: _Refused) -> None:
        """Log the begin of an outage, once."""
        if error.code != "http_429" and not self._away:
            self._away = True
            log.warning("%s takes no calls now, and the run waits: %s", self._base, error)

    async def aclose(self) -> None:
        """End the programs, so that engines drop their contexts, and close all connections."""
        for program in self._servers:
            url = f"{self._base}/v1/sessions/{quote(program, safe='')}"
            # Without this, the gateway ends a program once it is idle.
            with contextlib.suppress(*_NO_ANSWER):
                headers = {_PROGRAM: program}
                await self._client.delete(url, headers=headers, timeout=_CONNECT_S)
        for client in self._clients:
            await client.aclose()


def able_replicas(health: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the healthy replicas of a gateway that take new programs, from its `/health`."""
    listed = health.get("replicas")
    return [
        one for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and one.get("healthy") is True and not one.get("draining")
    ]  # fmt: skip


def _server(replica: dict[str, Any], program: str) -> Server:
    """Read a replica of the gateway's health."""
    name, slots, models = (replica.get(key) for key in ("name", "slots", "models"))
    return Server(
        program,
        name if isinstance(name, str) else "",
        slots if isinstance(slots, int) and slots > 0 else 0,
        frozenset(map(str, models)) if isinstance(models, list) and models else None,
        costs_of(replica),
    )


def body_of(request: LlmRequest) -> dict[str, Any]:
    """Return the body of a Chat Completions request."""
    if isinstance(request, ChatRequest):
        messages = [orjson.loads(text) for _, text in request.messages]
    else:
        messages = [{"role": role, "content": text} for role, text in request.messages]
    return {**request.parameters, "model": request.model, "messages": messages}


def encoded(request: LlmRequest) -> bytes:
    """Return the body of a Chat Completions request as JSON. Raises CallFailed for values that JSON
    does not have, such as half a surrogate pair or an integer of more than 64 bits.
    """
    try:
        return orjson.dumps(body_of(request))
    except TypeError as error:
        what = f"the request is not JSON: {error}"
        raise CallFailed(Failure("not_json", what, attempts=0)) from None


def read_answer(body: bytes, *, whole: bool = False) -> Answer:
    """Read the answer of a Chat Completions request. Raises CallFailed if it contains no text.
    whole: the caller wants all of it, and it may contain only tool calls.
    """
    try:
        parsed = orjson.loads(body)
        usage = _usage(parsed.get("usage") or {})
        message = parsed["choices"][0]["message"]
        text = "" if whole else message.get("content")
        if text is None:
            raise CallFailed(Failure("no_content", "the answer contains no text"), usage)
        return Answer(str(text), usage, parsed if whole else None)
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        what = "the answer is not a chat completion"
        raise CallFailed(Failure(_BAD_ANSWER, what)) from None


def _usage(found: dict[str, Any]) -> Usage:
    """Return the tokens that a server reports. Raises TypeError, ValueError or AttributeError if
    they are no counts.
    """
    cached = (found.get("prompt_tokens_details") or {}).get("cached_tokens")
    tokens = [found.get("prompt_tokens"), cached, found.get("completion_tokens")]
    counts = [int(count or 0) for count in tokens]
    if not all(0 <= count <= _MAX_TOKENS for count in counts):
        raise ValueError
    return Usage(*counts)


async def _body(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > _MAX_BYTES:
            raise _Refused("too_large", f"the answer has more than {_MAX_BYTES} bytes", False)
    return bytes(body)


def _message(body: bytes) -> str:
    """Return the message of an error in OpenAI's format, "" without one."""
    try:
        return str(orjson.loads(body)["error"]["message"])[:_MESSAGE]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_MESSAGE]
