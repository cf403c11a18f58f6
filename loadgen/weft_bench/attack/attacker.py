"""`python -m weft_bench.attack.attacker URL --attack NAME`: attack until SIGTERM, or for so
long."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import signal
from typing import Final

from weft_bench.attack.attacks import ATTACKS, Target

# An attacker on another machine would not take the gateway's processor.
_NICE: Final = 15


async def attack(name: str, target: Target, seconds: float) -> None:
    """Run one attack for so long, or until SIGTERM."""
    work = asyncio.ensure_future(ATTACKS[name](target))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    with contextlib.suppress(asyncio.CancelledError, TimeoutError):
        await asyncio.wait_for(work, seconds)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="weft_bench.attack.attacker", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--attack", required=True, choices=tuple(ATTACKS))
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    os.nice(_NICE)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(attack(args.attack, Target.at(args.url, args.model), args.seconds))


if __name__ == "__main__":
    main()
