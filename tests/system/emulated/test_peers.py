"""The plays of `weft bench peers` on emulated engines."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support.emulated import MODEL, EmulatedEngine, total
from support.peers import dialogues
from support.stack import SECRET, Stack
from weft_bench.peers.fronts import STOCK, WEFT, Place, fronts
from weft_bench.peers.plays import play
from weft_bench.peers.replicas import Replicas
from weft_bench.peers.scenes import LongGaps, Scene, cast
from weft_engine.emulated.engines import shapes

pytestmark = [pytest.mark.system, pytest.mark.engine]

BLOCKS = 100
(SHAPE,) = shapes("8b-h200", 1, 8, BLOCKS)


def peers(scheduler: str, *urls: str) -> Replicas:
    tokens = BLOCKS * SHAPE.block_tokens
    place = Place(MODEL, tokens, 2.0, SHAPE.cost, SECRET)
    shapes = (SHAPE,) * len(urls)
    return Replicas(urls, place, scheduler, tokens - SHAPE.block_tokens, SHAPE.block_tokens, shapes)


@pytest.fixture
def replicas(stack: Stack, swapping: EmulatedEngine) -> Iterator[Replicas]:
    """Return both engines with the plugin, and restore their orders afterwards."""
    found = peers(WEFT, stack.replicas[0], swapping.url)
    yield found
    for url, policy in zip(found.urls, ("resident", "mlfq"), strict=True):
        headers = {"x-weft-secret": SECRET}
        httpx.post(f"{url}/weft/policy", json={"policy": policy}, headers=headers)


def test_peers_compares_round_robin_and_weft_over_the_same_replicas(replicas, tmp_path):
    scene = Scene("tau_airline", "tau_airline", programs=8, rate=40.0, calls=4, longest_gap_s=0.2)
    data = dialogues(tmp_path / "data", 20, turns=4)
    played = cast(scene, data, 0, replicas, LongGaps(0.25, 2.0, 0.4)).scripts
    rows = fronts(replicas.place, ("plas",))
    turns = {
        name: play(rows[name], played, replicas, tmp_path, lambda: None, install=False)
        for name in ("weft/round_robin", "weft/plas", "weft/plas/no-key")
    }
    for slices in turns.values():
        figures = slices["all"]
        assert (figures["errors"], figures["untold"], figures["programs"]) == (0, 0, 8)
        assert figures["calls"] == 32
        assert figures["slowdown"] > 0.9
        assert figures["late"] >= 0
        assert slices["long gaps"]["programs"] == 2
    # Round robin with two replicas moves most calls of a chain to the other replica.
    assert turns["weft/round_robin"]["all"]["migrations"] > 0
    tokens = {slices["all"]["output_tokens"] for slices in turns.values()}
    assert len(tokens) == 1, "the fronts did different work"


def ask(url: str) -> str:
    """Make one call and return the id of the answer."""
    body = {
        "model": MODEL, "max_tokens": 4, "ignore_eos": True,
        "messages": [{"role": "user", "content": "Which flights leave? " * 40}],
    }  # fmt: skip
    return str(httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()["id"])


def test_replicas_report_their_answers_and_a_reset_empties_them(replicas):
    replicas.reset("fcfs")
    urls = replicas.urls
    ids = [ask(urls[0]), ask(urls[0]), ask(urls[1])]
    found = replicas.answers()
    assert [found[one].replica for one in ids] == [0, 0, 1]
    assert [found[one].cached_tokens > 0 for one in ids] == [False, True, False]
    replicas.reset("plas")
    assert replicas.answers() == {}
    again = ask(urls[0])
    assert replicas.answers()[again].cached_tokens == 0
    headers = {"x-weft-secret": SECRET}
    state = httpx.get(f"{urls[0]}/weft/state", headers=headers).json()
    assert state["engines"][0]["policy"] == "plas"
    busy_s, late_s = replicas.device_seconds()
    assert busy_s > 0
    assert late_s >= 0


def test_a_reset_empties_the_cache_of_stock_engines(stock):
    replicas = peers(STOCK, stock.url)

    def hits() -> float:
        """Return the tokens found in the cache of the device."""
        return total(stock.url, "vllm:prefix_cache_hits_total")

    replicas.reset("fcfs")
    first, before = ask(stock.url), hits()
    ask(stock.url)
    assert hits() > before
    assert set(replicas.answers()) > {first}
    replicas.reset("fcfs")
    assert replicas.answers() == {}
    before = hits()
    ask(stock.url)
    assert hits() == before
