"""Tuned values that gateways share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.programs.tuning import TuningStore
from weft_gateway.tuning.replay.trace import Values
from weft_gateway.tuning.values import SharedValues, ValuesChanging


class Busy(TuningStore):
    """Another gateway writes before each of the next `writes` writes."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.writes = writes

    async def write(self, values: Mapping[str, float], version: str) -> bool:
        if self.writes:
            self.writes -= 1
            await super().write({"other": 0.5}, (await self.read())[0])
        return await super().write(values, version)


class Away(TuningStore):
    """Fails while `away`. locked: another gateway has the lock."""

    away = locked = False

    async def read(self) -> tuple[str, Mapping[str, float]]:
        if self.away:
            raise TableUnavailable
        return await super().read()

    async def lead(self) -> bool:
        return not self.locked


def shared(store: TuningStore, *, tunes: bool = True) -> tuple[SharedValues, list[float]]:
    applied: list[float] = []
    return SharedValues(store, applied.append, tunes), applied


def test_a_change_reaches_the_other_gateways_once() -> None:
    async def steps() -> None:
        store = TuningStore()
        (one, at_one), (two, at_two) = shared(store), shared(store)
        await one.change({"alpha": 0.3})
        await one.change({"alpha": 0.4})
        await two.sync()
        await two.sync()
        assert one.values == two.values == Values(0.4)
        # The alpha is applied with each version, not with each look.
        assert (at_one, at_two) == ([0.3, 0.4], [0.4])

    asyncio.run(steps())


def test_a_change_is_repeated_after_changes_that_were_faster() -> None:
    one, applied = shared(Busy(3))
    asyncio.run(one.change({"alpha": 0.3}))
    assert (one.values, applied) == (Values(0.3), [0.3])


def test_a_change_that_never_succeeds_is_refused() -> None:
    one, applied = shared(Busy(1000))
    with pytest.raises(ValuesChanging) as caught:
        asyncio.run(one.change({"alpha": 0.3}))
    assert (caught.value.status, caught.value.code) == (409, "values_changing")
    assert applied == []


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_values_of_another_version_of_weft_do_no_harm(alpha: float) -> None:
    """Unknown names are ignored, and an alpha that no balancer accepts is not applied."""

    async def steps() -> None:
        store = TuningStore()
        await store.write({"alpha": alpha, "beta": 7.0}, "")
        one, applied = shared(store)
        await one.sync()
        assert (one.values, applied) == (Values(alpha=alpha), [])

    asyncio.run(steps())


def test_a_gateway_leads_while_it_has_the_lock_and_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft_gateway.tuning.values._EVERY_S", 0.0)

    async def becomes(one: SharedValues, leads: bool) -> None:
        async with asyncio.timeout(20):
            while one.leads is not leads:  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def steps() -> None:
        store = Away()
        (one, _), (idle, _) = shared(store), shared(store, tunes=False)
        tasks = [asyncio.create_task(each.run()) for each in (one, idle)]
        await becomes(one, True)
        # A store that is away may have given the lock to another gateway.
        store.away = True
        await becomes(one, False)
        store.away = False
        await becomes(one, True)
        store.locked = True
        await becomes(one, False)
        assert not idle.leads
        for task in tasks:
            task.cancel()

    asyncio.run(steps())
