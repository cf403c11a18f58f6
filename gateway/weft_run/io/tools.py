"""The tools of a run: Python functions, SQL and HTTP requests. See `sql` for databases."""

from __future__ import annotations

import asyncio
import copy
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from random import Random
from threading import Thread
from time import time
from types import ModuleType
from typing import Any, Final, NamedTuple

import httpx
import orjson

from weft_run.io import graphs
from weft_run.io.clients import MOST_PORT, new_client
from weft_run.io.errors import CallFailed
from weft_run.io.redirect import MakeCall
from weft_run.io.retry import may_pass, pause
from weft_run.io.rows import MOST_DEPTH, depth
from weft_run.io.sql import Databases, Found, SqlFailed
from weft_run.language.requests import GraphRequest, HttpRequest, PythonRequest, SqlRequest
from weft_run.plan.commands import Failure, ToolRequest
from weft_run.yaml_errors import close, nearest

_MAX_BYTES: Final = 16_777_216
_MESSAGE: Final = 500
_PORTS: Final = {"http": 80, "https": 443}
# HTTP requests at once. Others wait, and their time begins later.
_REQUESTS: Final = 100


class Result(NamedTuple):
    """The value of a tool, JSON. repeatable: equal requests have this value; False if it depends on
    the time or on chance.
    """

    value: Any
    repeatable: bool = True


# A function that calls `sys.exit` fails its row. It must not end the run.
_FAULTS: Final = (Exception, SystemExit)


class _Refused(Exception):
    """One attempt has failed. retry_after: the header."""

    def __init__(
        self, code: str, message: str, passes: bool = False, retry_after: str | None = None
    ) -> None:
        super().__init__(message[:_MESSAGE])
        self.code = code
        self.passes = passes
        self.retry_after = retry_after


class Tools:
    """Runs tools in threads.

    connections: SQLite files by name. hosts: `host` or `host:port` that HTTP requests may reach;
    IPv6 addresses in brackets. python: whether functions may run. threads: functions at once, and
    queries at once. timeout_s: of a query, or of an HTTP request with its answer; a Python function
    has no limit, because a thread cannot be stopped.
    """

    def __init__(
        self,
        *,
        connections: Mapping[str, Path] | None = None,
        hosts: Collection[str] = (),
        python: bool = True,
        threads: int = 8,
        timeout_s: float = 60.0,
    ) -> None:
        self._databases = Databases(connections or {}, timeout_s)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._python = python
        self._queries = asyncio.Semaphore(threads)
        self._threads = ThreadPoolExecutor(threads, "tool")
        self._functions: dict[str, Callable[..., Any]] = {}
        self._random = Random()
        self._timeout_s = timeout_s
        self._requests = asyncio.Semaphore(_REQUESTS)
        # httpx limits each read only, so a slow answer could take any time.
        self._client = new_client(None, tls=bool(self._hosts))

    def load(self, function: str) -> None:
        """Load a function `module:name` before the run. Raises ValueError if it does not exist."""
        self._function(function)

    @property
    def connections(self) -> Collection[str]:
        """The names of the connections."""
        return self._databases.names

    @property
    def hosts(self) -> Collection[str]:
        """The hosts that requests may reach."""
        return self._hosts

    async def run(self, request: ToolRequest, attempts: int, ask: MakeCall | None = None) -> Result:
        """Run a tool; an error that may pass is repeated if `attempts` allows it. ask: makes the
        calls of graphs. Raises CallFailed.
        """
        made = 0
        while True:
            made += 1
            try:
                return _checked(await self._once(request, ask))
            except _Refused as error:
                if not error.passes or made >= attempts:
                    failure = Failure(error.code, str(error), made)
                    raise CallFailed(failure) from None
                wait_s = pause(made, error.retry_after, time(), self._random)
            await asyncio.sleep(wait_s)

    async def _once(self, request: ToolRequest, ask: MakeCall | None) -> Result:
        if isinstance(request, HttpRequest):
            return Result(await self._http(request))
        if isinstance(request, SqlRequest):
            try:
                found = await self._query(request)
            except SqlFailed as error:
                raise _Refused("sql", str(error), error.passes) from None
            return Result(found.rows, found.repeatable)
        if isinstance(request, GraphRequest):
            return Result(await self._graph(request, ask))
        return Result(await self._call(request))

    async def _query(self, request: SqlRequest) -> Found:
        """Execute a statement. SQLite may not stop for a long time: then a read is left to its
        thread, also at the end of the process; a write is waited for, because its effect counts.
        """
        await self._queries.acquire()
        try:
            connection = self._databases.take(request)
        except SqlFailed:
            self._queries.release()
            raise
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        outcome: Future[Found] = Future()

        def settle() -> None:
            self._databases.give(request, connection)
            self._queries.release()
            ended.set()

        def work() -> None:
            try:
                outcome.set_result(connection.query(request))
            except BaseException as error:
                outcome.set_exception(error)
            # The loop may have ended before the query of an abandoned row.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle)

        if request.write:
            self._threads.submit(work)
            await ended.wait()
            return outcome.result()
        Thread(target=work, name="read", daemon=True).start()
        try:
            async with asyncio.timeout(self._timeout_s):
                await ended.wait()
        except TimeoutError:
            raise SqlFailed(f"no result within {self._timeout_s:g} s") from None
        finally:
            if not ended.is_set():
                connection.stop()
        return outcome.result()

    async def _graph(self, request: GraphRequest, ask: MakeCall | None) -> Any:
        if not self._python or ask is None:
            raise _Refused("not_allowed", "LangGraph graphs are not allowed here")
        try:
            return await graphs.invoke(graphs.load(request.graph), request.state, ask)
        except _FAULTS as error:
            raise _Refused("python", f"{type(error).__name__}: {error}") from None

    async def _call(self, request: PythonRequest) -> Any:
        if not self._python:
            raise _Refused("not_allowed", "Python functions are not allowed here")
        try:
            function = self._function(request.function)
        except ValueError as error:
            raise _Refused("not_found", str(error)) from None
        # A function may change its arguments, which are values of other operators, too.
        arguments = copy.deepcopy(request.arguments), copy.deepcopy(dict(request.named))
        try:
            found = await self._in_thread(function, *arguments[0], **arguments[1])
            return await found if inspect.isawaitable(found) else found
        except _FAULTS as error:
            passes = isinstance(error, OSError | TimeoutError)
            raise _Refused("python", f"{type(error).__name__}: {error}", passes) from None

    def _function(self, name: str) -> Callable[..., Any]:
        if name not in self._functions:
            module, _, attribute = name.partition(":")
            try:
                loaded = importlib.import_module(module)
                found = getattr(loaded, attribute)
            except _FAULTS as error:
                hint = ""
                if isinstance(error, ModuleNotFoundError) and error.name == module:
                    hint = close(module, (one.name for one in pkgutil.iter_modules()))
                elif isinstance(error, AttributeError) and error.name == attribute:
                    hint = nearest(attribute, _own_functions(loaded))
                raise ValueError(f"{name}: {type(error).__name__}: {error}{hint}") from None
            if not callable(found):
                raise ValueError(f"{name}: is not a function")
            self._functions[name] = found
        return self._functions[name]

    async def _in_thread(self, function: Callable[..., Any], *some: Any, **named: Any) -> Any:
        def call() -> Any:
            try:
                return function(*some, **named)
            except (StopIteration, GeneratorExit) as error:
                # They mean something else in the coroutine that waits, which would not end, or end
                # the run.
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _http(self, request: HttpRequest) -> Any:
        url = self._checked_url(request.url)
        try:
            content = None if request.body is None else orjson.dumps(request.body)
        except TypeError as error:
            raise _Refused("not_json", f"the body is not JSON: {error}") from None
        try:
            # A small compressed answer could fill the memory.
            headers = httpx.Headers({"accept-encoding": "identity"})
            if content is not None:
                headers["content-type"] = "application/json"
            headers.update(request.headers)
            # Redirects are not followed: they could lead to a host that is not allowed.
            async with (
                self._requests,
                asyncio.timeout(self._timeout_s),
                self._client.stream(
                    request.method, url, content=content, headers=headers
                ) as answer,
            ):
                body = bytearray()
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > _MAX_BYTES:
                        raise _Refused("too_large", f"more than {_MAX_BYTES} bytes")
        except TimeoutError:
            what = f"no complete answer within {self._timeout_s:g} s"
            raise _Refused("timeout", what, passes=True) from None
        except UnicodeError as error:
            raise _Refused("invalid_request", f"a header is no ASCII text: {error}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Refused("connection", str(error) or type(error).__name__, passes=True) from None
        status = answer.status_code
        coding = answer.headers.get("content-encoding", "").strip().lower()
        is_plain = coding in ("", "identity")
        if status >= 300:
            text = body.decode("utf-8", "replace") if is_plain else ""
            after = answer.headers.get("retry-after")
            to = answer.headers.get("location")
            if status < 400 and to:
                text = f"redirects are not followed; this one leads to {to}"
            raise _Refused(f"http_{status}", text or answer.reason_phrase, may_pass(status), after)
        if not is_plain:
            what = f"the answer is compressed (content-encoding: {coding}); let the server send it"
            raise _Refused("compressed", f"{what} without compression")
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            return body.decode("utf-8", "replace")

    def _checked_url(self, text: str) -> httpx.URL:
        """Return a URL of an allowed host, parsed once: two parsers may find different hosts."""
        try:
            url = httpx.URL(text)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise _Refused("not_allowed", f"{text!r} is not a URL: {error}") from None
        host, port = url.host.lower(), url.port or _PORTS.get(url.scheme)
        # Without brackets, an address and a port may be another, longer address.
        host = f"[{host}]" if ":" in host else host
        if url.scheme not in _PORTS or not host:
            raise _Refused("not_allowed", f"{text!r} is no absolute http or https URL")
        if not 0 <= (port or 0) <= MOST_PORT:
            raise _Refused("not_allowed", f"{text!r} has no valid port: at most {MOST_PORT}")
        if not {host, f"{host}:{port}"} & self._hosts:
            allowed = ", ".join(sorted(self._hosts)) or "none"
            what = f"{url.scheme}://{host}:{port} is not allowed; allowed hosts: {allowed}"
            raise _Refused("not_allowed", what)
        return url

    async def aclose(self) -> None:
        """Close connections. Functions and writes that run finish first: their effect counts."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._databases.close()
        await self._client.aclose()


def _own_functions(module: ModuleType) -> list[str]:
    """Return the names of the functions and classes that a module defines."""
    every = vars(module).items()
    return [
        name for name, one in every
        if callable(one) and getattr(one, "__module__", "") == module.__name__
    ]  # fmt: skip


def _checked(result: Result) -> Result:
    """Return the result as a copy that no other code can change. Raises _Refused if it is not
    JSON, or is nested too deeply for the journal and for templates.
    """
    try:
        text = orjson.dumps(result.value)
        copied = result._replace(value=orjson.loads(text))
    except (TypeError, orjson.JSONDecodeError) as error:
        raise _Refused("not_json", f"the value is not JSON: {error}") from None
    # orjson writes null for such numbers.
    if b"null" in text and _has_no_json(result.value):
        raise _Refused("not_json", "the value is not JSON: it contains NaN or an infinite number")
    if depth(text) > MOST_DEPTH:
        what = f"lists and objects have at most {MOST_DEPTH} levels"
        raise _Refused("too_deep", f"the value is nested too deeply: {what}")
    return copied


def _has_no_json(value: Any) -> bool:
    """Whether a value contains a number that JSON does not have."""
    if isinstance(value, float):
        return not isfinite(value)
    if isinstance(value, dict):
        value = value.values()
    elif is_dataclass(value):
        value = [getattr(value, one.name) for one in fields(value)]
    elif not isinstance(value, list | tuple):
        return False
    return any(map(_has_no_json, value))
