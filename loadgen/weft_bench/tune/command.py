"""`weft tune`: fetches the journals of gateways, replays them, and posts the best alpha."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
import typer

from weft_bench.tune.journals import Journals, TuneError, ask
from weft_bench.tune.recorded import Line, latest, recorded
from weft_bench.tune.replay import best, engines_of, tails

# HexGen-Flow, section 4.3.
_LEAST: Final = 5
_SIGNIFICANT: Final = 0.01
# Only the latest calls are replayed.
_MOST_CALLS: Final = 2000

tune = typer.Typer(add_completion=False)


@dataclass(slots=True)
class Tuner:
    """Tunes gateways. every_s: the length of a window, 0 for a single tuning of whole journals."""

    journals: Journals
    every_s: float
    dry_run: bool
    _calls: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    _before: list[float] = field(default_factory=list)

    def window(self) -> None:
        """Read the journals, and tune if the window is significantly worse than the one before.
        A program without a call for the length of a window has ended. Raises TuneError.
        """
        for _, line in self.journals.new():
            if line.answered:
                self._calls[line.program].append(line)
        if not self.every_s:
            self._tune(self._calls.keys())
            return
        ends = {name: max(line.end_s for line in calls) for name, calls in self._calls.items()}
        newest_s = max(ends.values(), default=0.0)
        ended = [name for name, end_s in ends.items() if end_s < newest_s - self.every_s]
        if len(ended) < _LEAST:
            # A window lasts until enough programs have ended.
            return
        times = [ends[name] - min(c.arrived_at for c in self._calls[name]) for name in ended]
        before, self._before = self._before, times
        try:
            if before and _worse(times, before):
                self._tune(ended)
        finally:
            for name in ended:
                del self._calls[name]

    def _tune(self, counted: Collection[str]) -> None:
        state = msgspec.json.decode(ask(self.journals.gateways[0], "GET", "/weft/state"))
        balancer, alpha = state["balancer"]["name"], state["balancer"]["alpha"]
        if balancer != "work":
            raise TuneError(f"only the balancer `work` has alpha; the gateway uses `{balancer}`")
        programs = latest((line for calls in self._calls.values() for line in calls), _MOST_CALLS)
        if len({line.model for calls in programs.values() for line in calls}) > 1:
            raise TuneError("the replay knows one model, and the journal has several")
        counted = programs.keys() & set(counted)
        if len(counted) < _LEAST:
            raise TuneError(f"{len(counted)} programs in the journal; {_LEAST} are needed")
        found = tails(recorded(programs), counted, engines_of(state["replicas"]), alpha)
        chosen = best(found, alpha)
        what = f"P95 of {len(counted)} programs, replayed: {found[alpha]:.3g} s with {alpha:g}"
        if chosen == alpha:
            typer.echo(f"alpha stays {alpha:g}; {what}")
            return
        for gateway in () if self.dry_run else self.journals.gateways:
            ask(gateway, "POST", "/weft/policy", {"options": {"alpha": chosen}})
        verb = "would be" if self.dry_run else "is"
        typer.echo(f"alpha {verb} {chosen:g}; {what}, {found[chosen]:.3g} s with {chosen:g}")


def _worse(new: Sequence[float], old: Sequence[float]) -> bool:
    """Whether the mean is significantly greater (Welch's one-sided t-test)."""
    from scipy.stats import ttest_ind

    found = ttest_ind(new, old, equal_var=False, alternative="greater")
    return bool(found.pvalue < _SIGNIFICANT)


@tune.callback(invoke_without_command=True)
def run(
    gateway: Annotated[list[str], typer.Option(help="URL of a gateway; repeatable")],
    every: Annotated[
        float, typer.Option(min=0, help="length of the windows in which it tunes, seconds; 0: once")
    ] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="post nothing")] = False,
) -> None:
    """Choose alpha of the balancer `work` by a replay of recent calls.

    WEFT_ADMIN_KEY is the admin key of the gateways. With --every, it tunes when programs have
    become significantly slower than in the window before (HexGen-Flow, section 4.3).
    """
    tuner = Tuner(Journals(gateway), every, dry_run)
    while True:
        try:
            tuner.window()
        except (TuneError, ModuleNotFoundError) as error:
            needs = "; run `make install`, which installs an engine, too"
            missing = needs if isinstance(error, ModuleNotFoundError) else ""
            typer.echo(f"weft tune: {error}{missing}", err=True)
            if missing or not every:
                raise typer.Exit(1) from None
        if not every:
            return
        time.sleep(every)


if __name__ == "__main__":
    tune()
