"""A stack for one bench: `weft up` as a child process."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from weft_bench.stack.processes import NotReady, free_port, running

_READY_S: Final = 600.0
_STOP_S: Final = 60.0


class StackError(RuntimeError):
    """The stack did not start. The message contains its output."""


Setup = tuple[Sequence[str], Mapping[str, str]]


def stack_at(base_url: str, setup: Callable[[], Setup]) -> AbstractContextManager[str]:
    """Yield the base URL, without /v1, of this gateway, or of a new stack if it is "".

    setup: called for a new stack. Raises the errors of `setup` and, on entry, of `local_stack`.
    """
    if base_url:
        return nullcontext(base_url.rstrip("/").removesuffix("/v1"))
    options, environment = setup()
    print("starting replicas and a gateway ...", flush=True)
    return local_stack(options, environment)


@contextmanager
def local_stack(options: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Start `weft up` with these options and variables on a free port, and end it after the block.

    Yields its base URL. Raises StackError.
    """
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "weft_gateway.cli", "up", "--port", str(port), *options]
    with ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "up.log"
        variables = {**os.environ, **environment}
        try:
            stack.enter_context(
                running(command, f"{base}/health", log, variables, _READY_S, _STOP_S)
            )
        except NotReady as error:
            raise StackError(str(error)) from None
        yield base


def engine_variables(
    environment: Mapping[str, str], ours: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return environment variables of engines that are JSON objects.

    ours: settings that override those of the environment. Raises ValueError if the environment has
    something else.
    """
    found = {}
    for name, settings in ours.items():
        try:
            found[name] = json.dumps({**json.loads(environment.get(name) or "{}"), **settings})
        except (ValueError, TypeError):
            raise ValueError(f"{name} is not a JSON object: {environment[name]}") from None
    return found


def configuration(options: Any) -> dict[str, Any]:
    """Return the options with an effect: those of the gateway, or those of a stack to start."""
    unused = options.OF_OWN_ENGINES if options.base_url else ("base_url",)
    return {name: value for name, value in asdict(options).items() if name not in unused}


def progress(unit: str) -> Progress:
    """Return progress bars that count `unit`."""
    columns = (TextColumn("{task.description:>20}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TextColumn(unit), TimeElapsedColumn())
