"""Long lists, written in turns of the event loop.

The model of an answer would check thousands of entries in one step. These answers are JSON already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

import orjson
from fastapi import Response

from weft_gateway.calls.turns import Turns
from weft_gateway.runs.records import Api

T = TypeVar("T")
# Entries written per turn, and the size of a body that takes as long to read.
_A_TURN: Final = 64
_TURN_BYTES: Final = 1 << 16


async def written(
    turns: Turns, tenant: str, found: Iterable[T], shown: Callable[[T], dict[str, Any]]
) -> tuple[list[bytes], list[Any]]:
    """Return entries in JSON, and their ids (None without one). found: read within the turns."""
    pieces: list[bytes] = []
    ids: list[Any] = []
    entries = iter(found)
    more = True
    while more:
        await turns.take(tenant, _TURN_BYTES)
        some = [shown(one) for one in islice(entries, _A_TURN)]
        pieces += [orjson.dumps(one) for one in some]
        ids += [one.get("id") for one in some]
        more = len(some) == _A_TURN
    return pieces, ids


async def listed(
    turns: Turns, tenant: str, found: Iterable[T], shown: Callable[[T], dict[str, Any]]
) -> orjson.Fragment:
    """Return entries as a list in JSON."""
    pieces, _ = await written(turns, tenant, found, shown)
    return orjson.Fragment(b"[%b]" % b",".join(pieces))


async def page(
    turns: Turns,
    tenant: str,
    found: Iterable[T],
    limit: int,
    shown: Callable[[T], dict[str, Any]],
    *,
    api: Api = Api.OPENAI,
    backwards: bool = False,
) -> Response:
    """Return a page of at most `limit` entries. found: the entries from the page's begin, or from
    its end if `backwards`; one more than `limit` means that another page follows.
    """
    pieces, ids = await written(turns, tenant, islice(found, limit + 1), shown)
    more = len(ids) > limit
    del pieces[limit:], ids[limit:]
    if backwards:
        pieces.reverse()
        ids.reverse()
    answer = {
        **({"object": "list"} if api is Api.OPENAI else {}),
        "data": orjson.Fragment(b"[%b]" % b",".join(pieces)),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": more,
    }
    return Response(orjson.dumps(answer), media_type="application/json")
