"""Redirects the chat calls of code that runs for a row: the run makes them.

Chat Completions requests of OpenAI's client, which LangChain's `ChatOpenAI` uses, do not go to the
network. Equal ones are merged, and all are journaled, budgeted and sent through the gateway. The
context of the code has the row, so requests of other code are not affected.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import orjson

from weft_run.io.errors import CallFailed
from weft_run.language.requests import ChatRequest

# Makes a call for a node, given its name, in any thread.
MakeCall = Callable[[str, ChatRequest], Future[Any]]

_CHAT: Final = "/chat/completions"
_RESPONSES: Final = "/responses"
_UNNAMED: Final = "call"
_BAD_GATEWAY: Final = 502
# The client must not repeat a call that the run has repeated already.
_HEADERS: Final = {"x-should-retry": "false"}
_NO_RESPONSES: Final = (
    "a node uses the Responses API; rows support Chat Completions: set use_responses_api=False"
)
_BLOCKS: Final = "an async node calls a model without await: use `await model.ainvoke(...)`"


class Row(NamedTuple):
    """The row whose code runs. loop: of the run."""

    ask: MakeCall
    loop: asyncio.AbstractEventLoop


ROW: Final[ContextVar[Row | None]] = ContextVar("weft_row", default=None)


def chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Return the request of a Chat Completions body. Streamed and other calls are equal."""
    apart = ("model", "messages", "stream", "stream_options")
    parameters = {name: one for name, one in body.items() if name not in apart}
    messages = tuple(
        (str(one.get("role", "")), orjson.dumps(one).decode()) for one in body.get("messages", ())
    )
    return ChatRequest(messages, str(body.get("model", "")), parameters)


def streamed(answer: Mapping[str, Any]) -> bytes:
    """Return an answer as the events of a stream."""
    choices = []
    for choice in answer.get("choices", ()):
        delta = dict(choice.get("message", {}))
        calls = delta.get("tool_calls")
        if calls:
            delta["tool_calls"] = [{"index": at, **one} for at, one in enumerate(calls)]
        choices.append(
            {"index": choice.get("index", 0), "delta": delta,
             "finish_reason": choice.get("finish_reason")}
        )  # fmt: skip
    chunk = {**answer, "object": "chat.completion.chunk", "choices": choices}
    return b"data: " + orjson.dumps(chunk) + b"\n\ndata: [DONE]\n\n"


@functools.cache
def install() -> None:
    """Hand the calls of rows to their run. Requests of other code are not affected."""
    # OpenAI's client has used both.
    for name in ("httpx", "httpx2"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        module.Client.send = _sync(module, module.Client.send)
        module.AsyncClient.send = _async(module, module.AsyncClient.send)


def _sync(module: Any, send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    def redirected(client: Any, request: Any, **options: Any) -> Any:
        row = ROW.get()
        if row is None or not _is_call(request):
            return send(client, request, **options)
        if _blocks(row.loop):
            return _refusal(module, request, 400, _BLOCKS)
        found = _asked(row, request)
        if isinstance(found, str):
            return _refusal(module, request, 400, found)
        try:
            return _answer(module, request, found.result())
        except CallFailed as error:
            return _failure(module, request, error)
        except CancelledError:
            # Only this one passes the client's retries.
            raise asyncio.CancelledError from None

    return redirected


def _async(module: Any, send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    async def redirected(client: Any, request: Any, **options: Any) -> Any:
        row = ROW.get()
        if row is None or not _is_call(request):
            return await send(client, request, **options)
        found = _asked(row, request)
        if isinstance(found, str):
            return _refusal(module, request, 400, found)
        try:
            return _answer(module, request, await asyncio.wrap_future(found))
        except CallFailed as error:
            return _failure(module, request, error)

    return redirected


def _is_call(request: Any) -> bool:
    path = str(request.url.path)
    return request.method == "POST" and path.endswith((_CHAT, _RESPONSES))


def _blocks(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _asked(row: Row, request: Any) -> Future[Any] | str:
    """Make a call, or return why it cannot be made."""
    if str(request.url.path).endswith(_RESPONSES):
        return _NO_RESPONSES
    return row.ask(_node(), chat_request(orjson.loads(request.content)))


def _node() -> str:
    """Return the name of the node that makes a call."""
    from langgraph.config import get_config

    try:
        return str(get_config()["metadata"]["langgraph_node"])
    except (RuntimeError, KeyError):
        return _UNNAMED


def _answer(module: Any, request: Any, answer: Mapping[str, Any]) -> Any:
    if orjson.loads(request.content).get("stream"):
        headers = {"content-type": "text/event-stream"}
        return module.Response(200, headers=headers, content=streamed(answer), request=request)
    return module.Response(200, json=answer, request=request)


def _failure(module: Any, request: Any, error: CallFailed) -> Any:
    kind, _, status = error.failure.code.partition("_")
    code = int(status) if kind == "http" and status.isdecimal() else _BAD_GATEWAY
    return _refusal(module, request, code, error.failure.message)


def _refusal(module: Any, request: Any, status: int, message: str) -> Any:
    body = {"error": {"message": message, "type": "invalid_request_error", "code": status}}
    return module.Response(status, json=body, headers=_HEADERS, request=request)
