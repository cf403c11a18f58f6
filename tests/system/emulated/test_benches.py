"""Benches on emulated engines: `weft bench replay` and the plays of `weft bench peers`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from support.emulated import MODEL, EmulatedEngine, total
from support.peers import dialogues
from support.spider import spider_data
from support.stack import SECRET, Stack
from weft_bench.mapred.workloads import WORKLOADS
from weft_bench.peers.fronts import STOCK, WEFT, Place, fronts
from weft_bench.peers.plays import play
from weft_bench.peers.replicas import Replicas
from weft_bench.peers.scenes import LongGaps, Scene, cast
from weft_bench.stack.processes import free_port, running
from weft_engine.emulated.engines import shapes

pytestmark = [pytest.mark.system, pytest.mark.engine]

BENCH = [sys.executable, "-m", "weft_gateway.cli", "bench"]
BLOCKS = 100
(SHAPE,) = shapes("8b-h200", 1, 8, BLOCKS)


def test_replay_runs_the_same_programs_under_each_policy(stack, tmp_path):
    file, plot = tmp_path / "replay.json", tmp_path / "replay.png"
    assert httpx.post(f"{stack.url}/weft/policy", json={"policy": "atlas"}).json()["applied"]
    done = subprocess.run(
        [*BENCH, "replay", "--base-url", stack.url, "--programs", "5", "--rate", "50",
         "--gap-scale", "0", "--json", str(file), "--plot", str(plot)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    figures = {f["name"]: f["value"] for f in document["figures"]}
    for name in ("programs", "calls", "output_tokens"):
        assert figures[f"fcfs/{name}"] == figures[f"plas/{name}"] > 0
    assert figures["fcfs/errors"] == 0
    assert figures["fcfs/service_mean"] > 0
    assert 0 < figures["fcfs/prefix_hit_rate"] < 1
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert document["configuration"]["base_url"] == stack.url
    assert document["configuration"]["engines"] == "emulated"
    assert "emulated: synthetic" in done.stdout
    assert "replicas" not in document["configuration"]
    state = httpx.get(f"{stack.url}/weft/state").json()
    orders = {r["answer"]["engines"][0]["policy"] for r in state["replicas"].values()}
    assert orders == {"atlas"}, "the bench did not restore the policy of the engines"
    table = state["table"]
    assert table["violations"] == []
    assert table["in_flight"] == {}
    assert httpx.get(f"{stack.url}/v1/sessions").json()["data"] == []


def test_replay_uses_the_recorded_arrivals_of_a_written_workload(stack, tmp_path):
    trace, file = tmp_path / "w.jsonl.xz", tmp_path / "replay.json"
    write = ["workload", "--name", "dialogues", "--programs", "4", "--out", str(trace)]
    play = ["replay", "--base-url", stack.url, "--trace", str(trace), "--programs", "4",
            "--rate", "50", "--arrivals", "recorded", "--gap-scale", "0",
            "--json", str(file)]  # fmt: skip
    for arguments in (write, play):
        done = subprocess.run(
            [*BENCH, *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    figures = {f["name"]: f["value"] for f in document["figures"]}
    assert figures["fcfs/errors"] == figures["plas/errors"] == 0
    assert figures["fcfs/calls"] == figures["plas/calls"] > 4
    assert document["configuration"]["trace_name"] == "dialogues"
    # The workload file has its own lengths, which are replayed unchanged.
    assert "lengths divided by" not in document["configuration"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trace", "/no/such/trace"], "/no/such/trace"),
        (["--policy", "nonsense"], "nonsense"),
        (["--arrivals", "weekly"], "weekly"),
        (["--arrivals", "recorded"], "has no arrival times"),
    ],
)
def test_invalid_options_of_replay_are_a_clear_error(stack, options, message):
    done = subprocess.run(
        [*BENCH, "replay", "--base-url", stack.url, "--programs", "1", *options],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert message in done.stderr


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


@pytest.fixture
def two_models(replicas, tmp_path) -> Iterator[str]:
    """Return the URL of a gateway in front of both engines, of which one serves a second model."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = [sys.executable, "-m", "weft_gateway.cli", "serve", "--port", str(port)]
    for replica in replicas.urls:
        serve += ["--replica", replica]
    variables = {**os.environ, "WEFT_ENGINE_SECRET": SECRET}
    with running(serve, f"{url}/ready", tmp_path / "gateway.log", variables):
        yield url


def test_all_systems_write_and_repair_the_same_queries_with_two_models(two_models, tmp_path):
    file, data = tmp_path / "spider.json", spider_data(tmp_path, {"music": 12})
    done = subprocess.run(
        [*BENCH, "workflows", "--data", str(data), "--workload", "spider", "--base-url", two_models,
         "--preset", "8b-h200,14b-h200", "--rows", "shuffled", "--contexts", "1", "--tokens", "4",
         "--slots", "8", "--kv-blocks", str(BLOCKS), "--dilate", "2", "--json", str(file)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert "answers differ" not in done.stderr
    assert "All systems have the same answers" in done.stdout
    cells = json.loads(file.read_text())["cells"]
    assert len({one["answers"] for one in cells}) == 1
    assert [one["system"] for one in cells] == list(WORKLOADS["spider"].systems)
    # One call for the tables and one for the query of each row, and repairs.
    assert len({one["calls"] for one in cells}) == 1
    assert cells[0]["calls"] > 2 * 12
    assert httpx.get(f"{two_models}/weft/state").json()["table"]["in_flight"] == {}
