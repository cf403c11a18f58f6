"""`weft up`: engines and the gateway on this machine, in the foreground, until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import httpx
from rich.console import Console
from weft_gateway.config import exposed, unread

from weft_deploy.local import plan, usage
from weft_deploy.local.children import Child, Children
from weft_deploy.local.demo_model import default_folder, ensure_demo_model
from weft_deploy.local.logs import engine_core_died
from weft_deploy.local.plan import OptionError, Settings, Start, UpOptions
from weft_deploy.local.ports import PortTaken, check_free, free_ports
from weft_deploy.local.progress import Progress

__all__ = ["UpOptions", "run"]

_READY_S: Final = 900.0
_POLL_S: Final = 0.25
_REDIS_S: Final = 5.0
_LOG_LINES: Final = 30
# Maximum restarts of an engine, and the pause before the first one. Later pauses are longer.
_RESTARTS: Final = 3
_RESTART_S: Final = 0.5


class _Stopped(Exception):
    """Ctrl-C, SIGTERM, or the terminal was closed."""


class _Failed(Exception):
    """A child failed. what: the end of a sentence that begins with the child's name."""

    def __init__(self, child: Child, what: str) -> None:
        super().__init__(f"{child.name} {what}")
        self.child = child


def run(
    options: UpOptions, replica: Callable[..., Start] = plan.replica, logs: Path | None = None
) -> int:
    """Start everything, print how to use it, and keep it running.

    Returns the exit status, after all children have ended: 0 after Ctrl-C or SIGTERM; 1 if a child
    did not become ready, or the gateway or every engine ended; 2 for an invalid option. replica:
    plans an engine; tests pass a fake one. logs: folder for the children's output.
    """
    console = Console(highlight=False, soft_wrap=True)
    try:
        settings = plan.check(options)
        check_free(options.host, options.port)
        if options.attach:
            _check_attached(settings.replica_urls.values())
        _check_redis(settings.redis_url, "--redis" if options.redis_url else "WEFT_REDIS_URL")
    except (OptionError, PortTaken) as error:
        return _refuse(error)
    for line in (*unread(os.environ), *exposed(settings)):
        print(f"weft up: warning: {line}", file=sys.stderr)
    # The port keeps the logs of several stacks of one checkout apart.
    logs = logs or default_folder().parents[1] / "logs" / str(options.port)
    with _signals(), Children(logs) as children:
        try:
            engines = _start(options, settings, console, children, replica)
            _keep(engines, console, children)
        except _Stopped:
            console.print("Stopping ...")
            return 0
        except OptionError as error:
            return _refuse(error)
        except _Failed as failure:
            _report(failure)
            return 1


def _report(failure: _Failed) -> None:
    child = failure.child
    print(
        f"weft up: {failure}; the end of {child.log}:\n{child.last_lines(_LOG_LINES)}",
        file=sys.stderr,
    )


def _keep(engines: list[str], console: Console, children: Children) -> NoReturn:
    """Watch the children, and restart engines that end, at most _RESTARTS times each.

    Raises _Failed when the gateway or the last engine has ended for good.
    """
    restarts: Counter[str] = Counter()
    while True:
        ended = children.crashed()
        if ended is not None:
            name, failure = ended.name, _failure(ended)
            if name not in engines or (engines == [name] and restarts[name] == _RESTARTS):
                raise failure
            _report(failure)
            children.forget(ended)
            if restarts[name] < _RESTARTS:
                restarts[name] += 1
                console.print(f"Restarting {name} ({restarts[name]} of {_RESTARTS}) ...")
                time.sleep(_RESTART_S * restarts[name])
                children.restart(ended)
            else:
                engines.remove(name)
                console.print(f"{name} is not restarted. Still running: {', '.join(engines)}.")
        time.sleep(_POLL_S)


def _refuse(error: Exception) -> int:
    for line in str(error).splitlines():
        print(f"weft up: {line}", file=sys.stderr)
    return 2


def _check_attached(urls: Iterable[str]) -> None:
    """Raise OptionError for an engine that sends no HTTP response, and for a gateway. Any status is
    accepted.
    """
    for url in urls:
        try:
            answer = httpx.get(f"{url}/health", timeout=10.0, trust_env=False)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise OptionError(f"--attach {url}: the engine does not answer ({error})") from None
        try:
            found = answer.json()
        except ValueError:
            continue
        # The gateway's own check of engines uses these members, too.
        if isinstance(found, dict) and {"table", "replicas"} <= found.keys():
            raise OptionError(f"--attach {url}: is a gateway of Weft; name its engines")


def _check_redis(url: str, name: str) -> None:
    """Raise OptionError if `url` is set and its Redis does not answer."""
    if not url:
        return
    # The import is slow, and most local stacks do not use Redis.
    from redis import Redis, RedisError

    try:
        with Redis.from_url(
            url, socket_timeout=_REDIS_S, socket_connect_timeout=_REDIS_S
        ) as client:
            client.ping()
    except (RedisError, OSError) as error:
        where = url.rpartition("@")[2].rpartition("//")[2].partition("?")[0]
        raise OptionError(f"{name} {where}: Redis does not answer ({error})") from None


def _start(
    options: UpOptions,
    settings: Settings,
    console: Console,
    children: Children,
    replica: Callable[..., Start],
) -> list[str]:
    """Start everything and print how to use it. Return the names of the started engines."""
    begun = time.monotonic()
    secret = os.environ.get("WEFT_ENGINE_SECRET", "")
    times: list[str] = []
    urls = list(options.attach)
    engines: list[str] = []
    if not urls:
        secret = secret or secrets.token_hex(16)
        gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
        if gpus and not options.model and options.emulated is None:
            console.print("This machine has an NVIDIA GPU. Use --model to serve a real model.")
        if options.emulated is not None:
            console.print("The engines are emulated: their times are those of a cost model.")
        model = options.model or str(_demo_model())
        times.append(f"model {time.monotonic() - begun:.1f} s")
        ports = free_ports(options.replicas)
        starts = [
            replica(options, number, port, model, secret, gpus) for number, port in enumerate(ports)
        ]
        engines = [start.name for start in starts]
        before = time.monotonic()
        _bring_up(starts, console, children)
        times.append(f"{len(starts)} replicas {time.monotonic() - before:.1f} s")
        urls = [f"http://127.0.0.1:{port}" for port in ports]
    before = time.monotonic()
    # The printed commands need a key. The user's keys must not show, or are known as digests only.
    key = f"up-{secrets.token_hex(16)}" if settings.needs_keys else ""
    keys = (*settings.api_keys, key) if key else ()
    _bring_up([plan.gateway(options, urls, secret, keys)], console, children)
    times.append(f"gateway {time.monotonic() - before:.1f} s")
    base = settings.base_url
    total_s = time.monotonic() - begun
    model = usage.served_model(base, key)
    if options.demo:
        _bring_up([plan.programs(base, model, options.demo, key)], console, children)
    for line in usage.lines(base, key, model, children.logs, times, total_s):
        # Users paste these lines, so that they must not pass rich's wrapping and markup.
        print(line, flush=True)
    return engines


def _demo_model() -> Path:
    try:
        return ensure_demo_model()
    except ImportError as error:
        raise OptionError(
            f"the engine is not installed ({error}): run `make up`, or use --attach with the URLs "
            "of running engines"
        ) from None


def _bring_up(starts: list[Start], console: Console, children: Children) -> None:
    """Start the processes together and wait until each is ready."""
    names = ", ".join(start.name for start in starts)
    console.print(f"Starting {names} ... (logs: {children.logs})")
    waiting = {
        start.ready_url: children.start(start.name, start.command, start.environment)
        for start in starts
    }
    progress = Progress(console)
    with httpx.Client(timeout=2.0, trust_env=False) as client:
        while waiting:
            _watch(children)
            for url, child in list(waiting.items()):
                try:
                    ready = client.get(url).status_code == 200
                except httpx.HTTPError:
                    ready = False
                if ready:
                    del waiting[url]
                    progress.ready(child.name)
                elif progress.elapsed_s > _READY_S:
                    raise _Failed(child, f"was not ready after {_READY_S:.0f} s")
            progress.waiting(list(waiting.values()))
            time.sleep(_POLL_S if waiting else 0)


def _watch(children: Children) -> None:
    crashed = children.crashed()
    if crashed is not None:
        raise _failure(crashed)


def _failure(ended: Child) -> _Failed:
    if engine_core_died(ended.tail()):
        return _Failed(ended, "has ended: its engine core died")
    return _Failed(ended, f"ended with status {ended.exited}")


@contextmanager
def _signals() -> Iterator[None]:
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # Under nohup, the process has to outlive its terminal.
        numbers.remove(signal.SIGHUP)

    def stop(*_: object) -> None:
        # A second Ctrl-C must not interrupt the shutdown.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise _Stopped

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
