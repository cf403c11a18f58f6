"""`weft bench attack`: what an honest client notices of attacks on the same gateway.

A gateway in front of two mock engines, one for the honest client's model and one for the
attacker's: what the attacker does to its own engine is not the gateway's. Before each attack the
honest client plays alone, which is the baseline of that attack.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from weft_bench.attack.attacks import ATTACKS
from weft_bench.report.figures import Figure, machine, write_json
from weft_bench.stack.processes import NotReady, free_port, running
from weft_bench.stats import percentile

HONEST: Final = "honest"
ATTACKED: Final = "attacked"
# Words of a stream that nobody reads: more than fits all buffers on its way.
_LONG: Final = 100_000
_STOP_S: Final = 10.0
# Until an attack is under way.
_LEAD_S: Final = 0.5
GOAL_MS: Final = 100.0


@dataclass(frozen=True, slots=True)
class AttackOptions:
    """Options of the command; see `weft bench attack --help`. seconds: of each baseline, and of
    each attack. attacks: their names; () for all."""

    seconds: float = 5.0
    attacks: tuple[str, ...] = ()
    json_file: str = ""


@dataclass(frozen=True, slots=True)
class Noticed:
    """What the honest client saw in one window. worst_ms, p99_ms: of its calls' latencies."""

    calls: int
    errors: int
    worst_ms: float
    p99_ms: float

    @classmethod
    def of(cls, latencies_ms: Sequence[float], errors: int) -> Noticed:
        """From the latencies of all calls."""
        worst = max(latencies_ms, default=0.0)
        return cls(len(latencies_ms), errors, worst, percentile(latencies_ms, 0.99))


def run(options: AttackOptions) -> int:
    """Measure and report. Returns the exit status: 1 where the honest client had errors or the
    processes did not start, 2 for an unknown attack."""
    unknown = [name for name in options.attacks if name not in ATTACKS]
    if unknown:
        print(f"weft bench attack: no attack {unknown}; there are {list(ATTACKS)}", file=sys.stderr)
        return 2
    seen: dict[str, tuple[Noticed, Noticed]] = {}
    try:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
            url = _start(Path(folder), processes)
            honest(url, min(1.0, options.seconds))  # Warms up.
            for name in options.attacks or ATTACKS:
                alone = honest(url, options.seconds)
                with attacking(url, name, options.seconds):
                    seen[name] = alone, honest(url, options.seconds)
                print(f"{name}: done", file=sys.stderr, flush=True)
    except NotReady as error:
        print(f"weft bench attack: a process did not start\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    show(seen)
    if options.json_file:
        path = Path(options.json_file)
        write_json(path, "weft bench attack", asdict(options), figures(seen))
    return 1 if any(under.errors for _, under in seen.values()) else 0


def _start(work: Path, processes: ExitStack) -> str:
    """Start the engines and the gateway; its URL."""
    engines = []
    for model, more in ((HONEST, ()), (ATTACKED, ("--chunks", str(_LONG)))):
        port = free_port()
        command = [sys.executable, "-m", "weft_bench.fake", "--plugin", "--port", str(port)]
        # The attacker's engine parses what the attacker sends.
        nice = ["nice", "-n", "15"] if model == ATTACKED else []
        url = f"http://127.0.0.1:{port}"
        processes.enter_context(
            running([*nice, *command, "--model", model, *more], f"{url}/health", work / model)
        )
        engines += ["--replica", url]
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "weft_gateway.cli", "serve", *engines, "--port", str(port)]
    # With its default settings.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    processes.enter_context(running(command, f"{url}/health", work / "gateway", environment))
    return url


def honest(url: str, seconds: float) -> Noticed:
    """What the honest client sees in so many seconds."""
    command = [
        sys.executable, "-m", "weft_bench.attack.honest", url, "--model", HONEST,
        "--seconds", str(seconds),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return Noticed.of(found["latencies_ms"], found["errors"])


@contextlib.contextmanager
def attacking(url: str, name: str, seconds: float) -> Iterator[None]:
    """Attack while the block runs, at most ten times `seconds` long and a minute."""
    command = [
        sys.executable, "-m", "weft_bench.attack.attacker", url,
        "--attack", name, "--model", ATTACKED,
        "--seconds", str(10 * seconds + 60),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LEAD_S)
            raise NotReady(f"the attack {name!r} ended at once, with status {process.returncode}")
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def show(seen: dict[str, tuple[Noticed, Noticed]]) -> None:
    """Print the table."""
    table = Table(title="An honest client's small calls, ms", title_justify="left")
    for column in ("attack", "worst alone", "worst", "more", "p99 alone", "p99", "calls", "errors"):
        table.add_column(column, justify="left" if column == "attack" else "right")
    for name, (alone, under) in seen.items():
        more = under.worst_ms - alone.worst_ms
        table.add_row(
            name,
            *(f"{value:.1f}" for value in (alone.worst_ms, under.worst_ms, more)),
            *(f"{value:.1f}" for value in (alone.p99_ms, under.p99_ms)),
            str(under.calls),
            str(under.errors),
        )
    Console(width=110).print(table)
    late = [n for n, (a, u) in seen.items() if u.worst_ms - a.worst_ms > GOAL_MS]
    print(f"worst call more than {GOAL_MS:g} ms above its baseline: {', '.join(late) or 'none'}")
    print(machine())


def figures(seen: dict[str, tuple[Noticed, Noticed]]) -> list[Figure]:
    """Everything in the table, by name."""
    found = []
    for name, pair in seen.items():
        for what, noticed in zip(("alone", "attacked"), pair, strict=True):
            found += [
                Figure(f"{name}/{what}/worst", noticed.worst_ms, "ms"),
                Figure(f"{name}/{what}/p99", noticed.p99_ms, "ms"),
                Figure(f"{name}/{what}/calls", noticed.calls, "calls"),
                Figure(f"{name}/{what}/errors", noticed.errors, "calls"),
            ]
    return found
