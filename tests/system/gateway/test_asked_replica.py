"""The hint that names a replica: its bound, and its fate in the receipt."""

from __future__ import annotations

from typing import Any

import pytest
from support.http_runs import chat

THERE = "applied: the call runs there"
pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def ask(gateway: Any, name: str) -> tuple[str, str, str]:
    """Make a call that asks for a replica. Returns the replica, the fate of the hint, and the
    reason of the choice.
    """
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
    answer = await gateway.call(body=body, headers={"x-weft-replica": name})
    assert answer.status_code == 200
    path = f"/v1/receipts/{answer.headers['x-request-id']}"
    receipt = (await gateway.client.get(path)).json()
    (fate,) = [one["fate"] for one in receipt["hints"] if one["hint"] == "x-weft-replica"]
    return answer.headers["x-weft-replica"], fate, receipt["place"]["reason"]


async def test_the_receipt_says_whether_the_call_ran_there(engine: Any, weft: Any) -> None:
    async with (
        engine(script=chat) as first,
        engine(script=chat) as second,
        weft(first, second) as gateway,
    ):
        assert await ask(gateway, "r1") == ("r1", THERE, "the client asks for it")
        for name in ("r7", "http://127.0.0.1:1", first.url, "r0,r1"):
            where, fate, _ = await ask(gateway, name)
            assert (where in ("r0", "r1"), fate.startswith("ignored: ")) == (True, True), name
        assert (await ask(gateway, "r7"))[1] == "ignored: no replica has this name"
        gateway.parts.registry["r1"].homes_until = 0.0
        where, fate, _ = await ask(gateway, "r1")
        assert where == "r0"
        assert fate == "ignored: the replica cannot take the call (draining)"


async def test_a_client_cannot_load_one_replica_beyond_its_slots(
    engine: Any, weft: Any, monkeypatch: Any
) -> None:
    async with (
        engine(script=chat) as first,
        engine(script=chat) as second,
        weft(first, second) as gateway,
    ):
        table = type(gateway.parts.table)
        for slots, in_flight, followed in (
            (4, {"r1": 4}, True),
            (4, {"r1": 5, "r0": 3}, False),
            (4, {"r1": 5, "r0": 4}, True),
            (0, {"r1": 50}, True),
        ):
            monkeypatch.setattr(table, "in_flight", lambda _, counts=in_flight: counts)
            for name in ("r0", "r1"):
                gateway.parts.registry[name].slots = slots
            where, fate, reason = await ask(gateway, "r1")
            assert (reason == "the client asks for it") is followed, in_flight
            # The router may choose the same replica.
            if where == "r0":
                assert fate == "ignored: the replica is full, and another one has free slots"
            else:
                assert fate == THERE
        monkeypatch.undo()
