"""Plays programs against a gateway until it is stopped, so that there is something to see.

    python -m weft_deploy.local.programs URL MODEL COUNT

Each program has a number, from which all about it follows: its name, its prompts, its answers, and
how long its tools run. When one ends, the next begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from random import Random
from typing import Any, Final
from urllib.parse import quote

import httpx

_TASKS: Final = ("fix", "test", "review", "port", "trace", "document", "profile", "split")
_PARTS: Final = ("login", "parser", "billing", "search", "cache", "upload", "router", "report")
_WORDS: Final = ("read", "the", "file", "change", "what", "test", "says", "then", "run", "build")
# The programs begin within this time, seconds.
_BEGIN_S: Final = 20.0
_GAP_S: Final = 15.0
_AGAIN_S: Final = 2.0


async def play(client: httpx.AsyncClient, model: str, number: int) -> None:
    """Play one program."""
    random = Random(number)
    name = f"{random.choice(_TASKS)}-{random.choice(_PARTS)}-{number}"
    headers = {"x-weft-program": name}
    messages = [
        _message(random, "system", 400),
        _message(random, "user", random.randint(200, 3000)),
    ]
    for _ in range(random.randint(3, 16)):
        body = {
            "model": model, "messages": messages, "max_tokens": random.randint(20, 120),
            "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        path = "/v1/chat/completions"
        async with client.stream("POST", path, json=body, headers=headers) as answer:
            if answer.status_code == 403:
                return  # Someone has stopped it.
            answer.raise_for_status()
            async for _piece in answer.aiter_bytes():
                pass
        messages.append(_message(random, "assistant", 60))
        messages.append(_message(random, "user", random.randint(20, 200)))
        await asyncio.sleep(min(random.expovariate(1 / _GAP_S), 4 * _GAP_S))
    await client.delete(f"/v1/sessions/{quote(name)}")


def _message(random: Random, role: str, words: int) -> dict[str, Any]:
    return {"role": role, "content": " ".join(random.choices(_WORDS, k=words))}


async def main(url: str, model: str, count: int) -> None:
    """Play `count` programs at a time, for ever."""
    numbers = itertools.count(1)
    key = os.environ.get("DEMO_PROGRAMS_KEY", "")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=None, limits=limits, trust_env=False
    ) as client:

        async def one_by_one(place: int) -> None:
            await asyncio.sleep(place * _BEGIN_S / count)
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    await play(client, model, next(numbers))
                    continue
                await asyncio.sleep(_AGAIN_S)

        await asyncio.gather(*map(one_by_one, range(count)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
