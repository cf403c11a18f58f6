"""`make gpu`: all figures that need a GPU, in about 15 minutes.

Each part is a command with a time limit, and writes its JSON file when it ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from weft_bench.agents.engines import Engines, Wanted, started
from weft_bench.agents.host import HostError, look
from weft_bench.agents.shapes import SHAPES
from weft_bench.stack.local import StackError

_ROOT: Final = Path(__file__).resolve().parents[2]
_WEFT: Final = (sys.executable, "-m", "weft_gateway.cli", "bench")
_SHAPE: Final = "8b"
_SLOTS: Final = 64
_STEP_TOKENS: Final = 8192
_BLOCK_TOKENS: Final = 16
# A command that does not end when it is asked to is killed after this.
_STOP_S: Final = 30


@dataclass(frozen=True, slots=True)
class Given:
    """What a part gets. data: folder of the recorded workloads. file: for its JSON. limit_s: its
    limit. more: further arguments of engines.
    """

    data: Path
    file: Path
    limit_s: int
    more: Sequence[str] = ()


# Runs a part, and returns its exit status.
Part = Callable[[Given], int]


def main(arguments: Sequence[str]) -> int:
    """Run parts. Returns the exit status: 1 if one fails, 2 without a GPU and for invalid input."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    more = arguments[at + 1 :]
    parser = argparse.ArgumentParser(
        prog="make gpu",
        description="Measure on an NVIDIA GPU. Engines get the arguments after --.",
    )
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all, in this order")
    parser.add_argument("--data", default="data", help="folder of the recorded workloads")
    parser.add_argument("--out", default="results/gpu", help="folder for the JSON files")
    options = parser.parse_args(arguments[:at])
    parts = options.parts or list(PARTS)
    data, out = Path(options.data).resolve(), Path(options.out).resolve()
    if unknown := set(parts) - PARTS.keys():
        parser.error(f"unknown parts {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    if "agents" in parts and not data.is_dir():
        parser.error(f"--data {data} is no folder")
    try:
        print(json.dumps(look(SHAPES[_SHAPE].weight_bytes)), flush=True)
    except HostError as error:
        print(f"make gpu: {error}", file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for part in parts:
        play, limit_s = PARTS[part]
        print(f"make gpu: {part}, at most {limit_s} s", flush=True)
        if play(Given(data, out / f"{part}.json", limit_s, more)):
            failed.append(part)
    if failed:
        print(f"make gpu: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def fit(given: Given) -> int:
    """Measure the steps of an engine with contexts of up to 100,000 tokens."""
    begun = time.monotonic()
    sizes = ("--max-num-seqs", str(_SLOTS), "--max-num-batched-tokens", str(_STEP_TOKENS))
    try:
        with started(Wanted(model=_SHAPE, more=(*sizes, *given.more))) as engines:
            left_s = given.limit_s - int(time.monotonic() - begun)
            return _within(left_s, fit_line(engines, given.file))
    except StackError as error:
        print(f"make gpu: {error}", file=sys.stderr)
        return 1


def fit_line(engines: Engines, file: Path) -> list[str]:
    """Return the command for these engines."""
    sizes = {
        "slots": _SLOTS, "step-tokens": _STEP_TOKENS, "context": engines.context,
        "kv-blocks": engines.kv_tokens // _BLOCK_TOKENS, "block-tokens": _BLOCK_TOKENS,
        "block-bytes": SHAPES[_SHAPE].token_bytes * _BLOCK_TOKENS, "rounds": 2,
    }  # fmt: skip
    options = [text for name, size in sizes.items() for text in (f"--{name}", str(size))]
    return [*_WEFT, "fit", "--engine", engines.urls[0], *options, "--json", str(file)]


def agents(given: Given) -> int:
    """Play recorded sessions of real length, twice as many at once as fit, by Weft and by vLLM."""
    return _within(given.limit_s, agents_line(given))


def agents_line(given: Given) -> list[str]:
    """Return the command."""
    return [
        *(*_WEFT, "agents", "--engines", "gpu", "--shape", _SHAPE, "--times", "2"),
        *("--data", str(given.data), "--json", str(given.file), "--", *given.more),
    ]


def swap(given: Given) -> int:
    """Copy KV blocks in several ways."""
    return _within(given.limit_s, [*_WEFT, "swap", "--json", str(given.file)])


def tests(given: Given) -> int:
    """Run the tests that need a GPU."""
    begun = time.monotonic()
    status = _within(given.limit_s, [sys.executable, "-m", "pytest", "tests/gpu", "-q"])
    seconds = round(time.monotonic() - begun, 1)
    given.file.write_text(json.dumps({"status": status, "seconds": seconds}) + "\n")
    return status


PARTS: Final[Mapping[str, tuple[Part, int]]] = {
    "fit": (fit, 150),
    "agents": (agents, 450),
    "swap": (swap, 120),
    "tests": (tests, 180),
}


def _within(limit_s: int, line: Sequence[str]) -> int:
    """Run a command, and end it and what it has started after so many seconds."""
    stopping = ("timeout", f"--kill-after={_STOP_S}", str(max(1, limit_s)))
    return subprocess.run([*stopping, *line], cwd=_ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
