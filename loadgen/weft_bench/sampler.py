"""Where CPU time goes, by looking at the stack at even intervals of it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from types import FrameType
from typing import Final

# CPU time between two looks, seconds: a look takes some 20 us.
_INTERVAL_S: Final = 0.002


@dataclass(slots=True)
class Samples:
    """count: looks. within: those in which a function was on the stack; own: at its top. Functions
    are named as `file:function`."""

    count: int = 0
    within: Counter[str] = field(default_factory=Counter)
    own: Counter[str] = field(default_factory=Counter)

    def add(self, frame: FrameType | None) -> None:
        """A look at a stack, from its top."""
        if frame is None:
            return
        self.count += 1
        self.own[_name(frame)] += 1
        names = set()
        while frame is not None:
            names.add(_name(frame))
            frame = frame.f_back
        self.within.update(names)

    def lines(self, most: int) -> list[str]:
        """A table of so many functions that have the most CPU time of their own or below them."""
        top = sorted(self.within, key=lambda name: (-self.within[name], name))[:most]
        return [f"{'within':>7} {'own':>6}  function, of {self.count:,} looks"] + [
            f"{self.within[name] / self.count:7.1%} {self.own[name] / self.count:6.1%}  {name}"
            for name in top
        ]


@contextmanager
def sampled(interval_s: float = _INTERVAL_S) -> Iterator[Samples]:
    """Look at the stack of the main thread, which must be the caller's, while in here: ValueError
    elsewhere. It waits for C code to return, which then has the look for its caller."""
    samples = Samples()
    before = signal.signal(signal.SIGPROF, lambda _, frame: samples.add(frame))
    signal.setitimer(signal.ITIMER_PROF, interval_s, interval_s)
    try:
        yield samples
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _name(frame: FrameType) -> str:
    code = frame.f_code
    return f"{PurePath(code.co_filename).stem}:{code.co_qualname}"
