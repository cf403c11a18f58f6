"""`weft up`: engines and the gateway on this machine, in the foreground, until Ctrl-C."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console

from deploy.local import plan
from deploy.local.children import Child, Children
from deploy.local.demo_model import default_folder, ensure_demo_model
from deploy.local.plan import OptionError, Start, UpOptions
from deploy.local.ports import PortTaken, check_free, free_ports

__all__ = ["UpOptions", "run"]

_READY_S: Final = 900.0
_POLL_S: Final = 0.25
_LOG_LINES: Final = 30


class _Stopped(Exception):
    """Ctrl-C or SIGTERM."""


class _Crashed(Exception):
    """A child ended by itself."""

    def __init__(self, child: Child) -> None:
        super().__init__(child.name)
        self.child = child


def run(options: UpOptions, replica: Callable[..., Start] = plan.replica) -> int:
    """Start, wait, print how to use it, stay. Returns the exit status: 0 after Ctrl-C, 1 when a
    child crashed, 2 for a wrong option. `replica` makes an engine's command; tests put theirs."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        plan.check(options)
        check_free(options.host, options.port)
    except (OptionError, PortTaken) as error:
        print(f"weft up: {error}", file=sys.stderr)
        return 2
    logs = default_folder().parents[1] / "logs"
    with _signals(), Children(logs) as children:
        try:
            _start(options, console, children, replica)
            while True:
                _watch(children)
                time.sleep(_POLL_S)
        except _Stopped:
            console.print("Stopping ...")
            return 0
        except _Crashed as crash:
            child = crash.child
            print(
                f"weft up: {child.name} ended with status {child.exited}; "
                f"the end of {child.log}:\n{child.last_lines(_LOG_LINES)}",
                file=sys.stderr,
            )
            return 1


def _start(
    options: UpOptions, console: Console, children: Children, replica: Callable[..., Start]
) -> None:
    begun = time.monotonic()
    secret = os.environ.get("WEFT_ENGINE_SECRET", "")
    times: list[str] = []
    urls = list(options.attach)
    if not urls:
        secret = secret or secrets.token_hex(16)
        gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
        if gpus and not options.model:
            console.print("An NVIDIA GPU is here: name a model with --model to serve a real one.")
        model: Path | str = options.model or ensure_demo_model()
        times.append(f"model {time.monotonic() - begun:.1f} s")
        ports = free_ports(options.replicas)
        starts = [
            replica(options, number, port, model, secret, gpus) for number, port in enumerate(ports)
        ]
        before = time.monotonic()
        _bring_up(starts, console, children)
        times.append(f"{len(starts)} replicas {time.monotonic() - before:.1f} s")
        urls = [f"http://127.0.0.1:{port}" for port in ports]
    before = time.monotonic()
    _bring_up([plan.gateway(options, urls, secret)], console, children)
    times.append(f"gateway {time.monotonic() - before:.1f} s")
    _print_usage(options, console, times, time.monotonic() - begun, children)


def _bring_up(starts: list[Start], console: Console, children: Children) -> None:
    """Start the processes together and wait until each is ready."""
    waiting = {
        start.name: (start, children.start(start.name, start.command, start.environment))
        for start in starts
    }
    begun = time.monotonic()
    with (
        console.status(f"starting {', '.join(waiting)}") as status,
        httpx.Client(timeout=2.0, trust_env=False) as client,
    ):
        while waiting:
            _watch(children)
            if time.monotonic() - begun > _READY_S:
                raise _Crashed(next(iter(waiting.values()))[1])
            for name, (start, child) in list(waiting.items()):
                try:
                    ready = client.get(start.ready_url).status_code == 200
                except httpx.HTTPError:
                    ready = False
                if ready:
                    del waiting[name]
                    console.print(f"{name} is ready after {time.monotonic() - begun:.1f} s")
                elif console.is_terminal:
                    line = child.last_lines()[:100].replace("[", r"\[")
                    status.update(f"{time.monotonic() - begun:4.0f} s  {name}: {line}")
            time.sleep(_POLL_S)


def _watch(children: Children) -> None:
    crashed = children.crashed()
    if crashed is not None:
        raise _Crashed(crashed)


def _print_usage(
    options: UpOptions, console: Console, times: list[str], total_s: float, children: Children
) -> None:
    base = plan.base_url(options)
    model = _served_model(base)
    question = {"role": "user", "content": "Hello"}
    body = json.dumps({"model": model, "messages": [question], "max_tokens": 32})
    lines = [
        f"Ready after {total_s:.1f} s ({', '.join(times)}).",
        "",
        f"Base URL  {base}/v1",
        f"curl      curl {base}/v1/chat/completions "
        f"-H 'content-type: application/json' -d '{body}'",
        f"Python    python -c \"import openai; print(openai.OpenAI(base_url='{base}/v1', "
        f"api_key='none').chat.completions.create(model='{model}', max_tokens=32, "
        f'messages=[{question}]).choices[0].message.content)"',
        f"Logs      {children.logs}",
        "Ctrl-C stops everything.",
    ]
    for line in lines:
        # Not through the console: what is to be pasted must not be wrapped or marked up.
        print(line, flush=True)


def _served_model(base: str) -> str:
    try:
        answer = httpx.get(f"{base}/v1/models", timeout=5.0, trust_env=False).json()
        return str(answer["data"][0]["id"])
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError):
        return "MODEL"


@contextmanager
def _signals() -> Iterator[None]:
    def stop(*_: object) -> None:
        # Once: a second Ctrl-C must not interrupt the stopping.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        raise _Stopped

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
