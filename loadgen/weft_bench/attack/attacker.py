"""`python -m weft_bench.attack.attacker URL --attack NAME`: attack until stdin ends.

For each line on stdin, it prints one JSON object with the attack's activity so far.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sys
from dataclasses import asdict
from typing import Final

from weft_bench.attack.attacks import ATTACKS, Activity, Target

# An attacker on another machine would not use the gateway's processor.
_NICE: Final = 15


async def attack(name: str, target: Target) -> None:
    """Run one attack."""
    did = Activity()
    work = asyncio.ensure_future(ATTACKS[name].run(target, did))

    def asked() -> None:
        if sys.stdin.readline():
            print(json.dumps(asdict(did)), flush=True)
        else:
            work.cancel()

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), asked)
    with contextlib.suppress(asyncio.CancelledError):
        await work


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="weft_bench.attack.attacker", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--attack", required=True, choices=tuple(ATTACKS))
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    os.nice(_NICE)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(attack(args.attack, Target.at(args.url, args.model)))


if __name__ == "__main__":
    main()
