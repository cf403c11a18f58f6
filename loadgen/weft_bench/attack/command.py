"""`weft bench attack`: measures the effect of attacks on an honest client of the same gateway.

A gateway runs in front of two mock engines, one for the honest client's model and one for the
attacker's. The attacker thus affects only its own engine and the gateway. Each attack has a new
gateway. The honest client plays alternately alone and during the attack.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from weft_bench.attack.attacks import ATTACKER, ATTACKS, MANY_KEYS, Activity
from weft_bench.cli.parts import AttackOptions
from weft_bench.report.page import conclude
from weft_bench.stack.processes import NotReady, free_port, running
from weft_bench.stats import percentile

HONEST: Final = "honest"
ATTACKED: Final = "attacked"
# Words of an unread stream: more than all buffers on the path hold.
_LONG: Final = 100_000
_STOP_S: Final = 10.0
# Seconds from one call of the honest client to the next.
_EVERY_S: Final = 0.02
# Time limit for an attack to take effect.
_LEAD_S: Final = 30.0
# Pause before the honest client plays alone again, to finish the attack's remaining work.
_CALM_S: Final = 0.5
# Number of times that an attack's timeout passes in each window.
_TIMEOUTS: Final = 3


@dataclass(slots=True)
class Windows:
    """The honest client's windows of one kind: call latencies in milliseconds per round, and
    failures.
    """

    rounds: list[list[float]] = field(default_factory=list)
    errors: int = 0

    @property
    def worst_ms(self) -> list[float]:
        """The slowest call of each round."""
        return [max(latencies, default=0.0) for latencies in self.rounds]

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of the calls of all rounds."""
        return percentile([one for latencies in self.rounds for one in latencies], 0.99)

    def cell(self) -> dict[str, Any]:
        """Return the fields for the results."""
        calls = [len(latencies) for latencies in self.rounds]
        worst = [round(ms, 2) for ms in self.worst_ms]
        p99 = round(self.p99_ms, 2)
        return {"calls": calls, "errors": self.errors, "worst_ms": worst, "p99_ms": p99}


@dataclass(slots=True)
class Seen:
    """One attack: the honest client alone and during the attack, and the attacker's activity."""

    alone: Windows = field(default_factory=Windows)
    attacked: Windows = field(default_factory=Windows)
    did: Activity = field(default_factory=Activity)

    @property
    def more_ms(self) -> float:
        """The slowest call of all attacked rounds minus the baseline.

        The baseline is the median of the slowest calls of the rounds alone.
        """
        return max(self.attacked.worst_ms) - median(self.alone.worst_ms)


def run(options: AttackOptions) -> int:
    """Measure and report.

    Returns the exit status: 1 if a goal is missed or a process does not start.
    """
    seen: dict[str, Seen] = {}
    try:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
            engines = _start_engines(Path(folder), processes)
            for name in options.attacks or ATTACKS:
                timeout = ATTACKS[name].until
                settings = {timeout: options.seconds / _TIMEOUTS} if timeout else {}
                with _gateway(engines, settings, Path(folder) / "gateway.log") as url:
                    seen[name] = _measure(url, name, options)
                print(f"{name}: done", file=sys.stderr, flush=True)
    except NotReady as error:
        print(f"weft bench attack: a process did not start\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return conclude(
        f"weft bench attack --seconds {options.seconds:g} --rounds {options.rounds}",
        "Attacks on a gateway beside an honest client",
        "mock engines",
        [table(seen, options)],
        [
            {
                "attack": name,
                "alone": one.alone.cell(),
                "attacked": one.attacked.cell(),
                "did": asdict(one.did),
            }
            for name, one in seen.items()
        ],
        missed(seen, options.goal_ms),
        options.json_file,
    )


def _start_engines(work: Path, processes: ExitStack) -> list[str]:
    """Start the engines and return their URLs."""
    urls = []
    for model, more in ((HONEST, ()), (ATTACKED, ("--chunks", str(_LONG)))):
        port = free_port()
        command = [sys.executable, "-m", "weft_bench.fake", "--plugin", "--port", str(port)]
        # The attacker's engine parses the attacker's calls.
        nice = ["nice", "-n", "15"] if model == ATTACKED else []
        url = f"http://127.0.0.1:{port}"
        processes.enter_context(
            running([*nice, *command, "--model", model, *more], f"{url}/health", work / model)
        )
        urls.append(url)
    return urls


@contextlib.contextmanager
def _gateway(engines: Sequence[str], settings: Mapping[str, float], log: Path) -> Iterator[str]:
    """Start a gateway with these settings and otherwise defaults. Yields its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port)]
    command += [part for engine in engines for part in ("--replica", engine)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    environment |= {f"WEFT_{name.upper()}": str(value) for name, value in settings.items()}
    environment["WEFT_API_KEYS"] = ",".join((HONEST, ATTACKER, *MANY_KEYS))
    with running(command, f"{url}/health", log, environment):
        yield url


def _measure(url: str, name: str, options: AttackOptions) -> Seen:
    """Run the rounds of one attack."""
    seen = Seen()
    _honest(url, min(1.0, options.seconds), Windows())  # Warms up.
    for _ in range(options.rounds):
        time.sleep(_CALM_S)
        _honest(url, options.seconds, seen.alone)
        with _attacking(url, name) as attacker:
            before = _lead_in(attacker, name)
            _honest(url, options.seconds, seen.attacked)
            for what, count in asdict(_activity(attacker)).items():
                more = getattr(seen.did, what) - getattr(before, what)
                setattr(seen.did, what, count if what == "open" else count + more)
    return seen


def _honest(url: str, seconds: float, windows: Windows) -> None:
    """Run one window of the honest client."""
    command = [
        sys.executable, "-m", "weft_bench.drive.load", url, "--model", HONEST, "--key", HONEST,
        "--session", HONEST, "--seconds", str(seconds), "--every", str(_EVERY_S),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    windows.rounds.append(found["latencies_ms"])
    windows.errors += found["errors"]


@contextlib.contextmanager
def _attacking(url: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """Attack during the block."""
    command = [
        sys.executable, "-m", "weft_bench.attack.attacker", url,
        "--attack", name, "--model", ATTACKED,
    ]  # fmt: skip
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
                process.communicate(timeout=_STOP_S)
            process.kill()


def _activity(attacker: subprocess.Popen[str]) -> Activity:
    """Return the attacker's activity so far. Raises NotReady if it has ended."""
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    try:
        attacker.stdin.write("\n")
        attacker.stdin.flush()
        return Activity(**json.loads(attacker.stdout.readline()))
    except (OSError, ValueError):
        raise NotReady(f"the attacker ended with status {attacker.wait(_STOP_S)}") from None


def _lead_in(attacker: subprocess.Popen[str], name: str) -> Activity:
    """Wait until the attack takes effect. Returns its activity by then."""
    deadline = time.monotonic() + _LEAD_S
    while True:
        did = _activity(attacker)
        if getattr(did, ATTACKS[name].sign) or time.monotonic() > deadline:
            return did
        time.sleep(0.05)


def missed(seen: Mapping[str, Seen], goal_ms: float) -> list[str]:
    """Return the missed goals as text."""
    found = []
    for name, one in seen.items():
        sign = ATTACKS[name].sign
        if not getattr(one.did, sign):
            found.append(f"{name}: the attack had no effect: 0 {sign} in its windows")
        if one.alone.errors or one.attacked.errors:
            errors = f"{one.alone.errors} alone, {one.attacked.errors} during the attack"
            found.append(f"{name}: calls of the honest client failed: {errors}")
        if one.more_ms > goal_ms:
            found.append(
                f"{name}: the worst call took {one.more_ms:.0f} ms more than alone, above the goal "
                f"of {goal_ms:g} ms"
            )
    return found


def table(seen: Mapping[str, Seen], options: AttackOptions) -> dict[str, Any]:
    """Return a table with one row per attack."""
    rows = []
    for name, one in seen.items():
        worst = [", ".join(f"{ms:.0f}" for ms in w.worst_ms) for w in (one.alone, one.attacked)]
        p99 = [f"{w.p99_ms:.1f}" for w in (one.alone, one.attacked)]
        calls, failed = sum(map(len, one.attacked.rounds)), one.attacked.errors
        did = [f"{count:,}" for what, count in asdict(one.did).items() if what != "sent_bytes"]
        sent = f"{one.did.sent_bytes / 1e6:.1f}"
        more = f"{one.more_ms:.0f}"
        rows.append([name, *worst, more, *p99, f"{calls} ({failed})", sent, *did])
    return {
        "title": f"an honest client with one call every 20 ms, {options.rounds} windows of "
        f"{options.seconds:g} s alternately alone and during each attack: its slowest call in each "
        "window, ms from the call's scheduled time, and the attacker's activity. The goal is at "
        f"most {options.goal_ms:g} ms more than the median window alone. Timeouts of an attack "
        f"are a third of a window; all other settings are the defaults",
        "labels": 1,
        "columns": [
            "attack", "worst alone", "worst", "more", "p99 alone", "p99", "calls (failed)",
            "MB sent", "connections", "open", "served", "refused", "closed",
        ],
        "rows": rows,
    }  # fmt: skip
