"""The engines of a comparison: their command lines, and what the bench asks them."""

from __future__ import annotations

from contextlib import contextmanager

import httpx
import pytest
from weft_bench.cli.peers import PeersOptions
from weft_bench.peers import replicas as module
from weft_bench.peers.outcome import Answer
from weft_bench.peers.replicas import Replicas, replicas
from weft_bench.stack.local import StackError
from weft_engine.emulated.presets import preset

URLS = ("http://127.0.0.1:8001", "http://127.0.0.1:8002")
CALL = {"id": "a", "prompt_tokens": 64, "cached_tokens": 32, "output_tokens": 3, "used_s": 0.5}
METRICS = (
    "# TYPE weft_emulated_busy_seconds_total counter\nweft_emulated_busy_seconds_total 2.0\n"
    "weft_emulated_late_seconds_total 0.25\n"
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="2000",engine="0"} 1.0\n'
)


@pytest.fixture
def stacks(monkeypatch):
    """Replaces `weft up` and its engines. Returns the started stacks, and the requests."""
    lines: list[tuple[list[str], dict[str, str]]] = []
    asked: list[tuple[str, str]] = []
    refused = f"{URLS[0]}/reset_prefix_cache?reset_external=true"

    @contextmanager
    def started(line, environment):
        lines.append((line, environment))
        yield f"http://gateway-{len(lines)}"

    def request(method, url, *, json=None, headers=None, **_):
        asked.append((method, url))
        path = httpx.URL(url).path
        answers = {
            "/v1/models": {"data": [{"id": "emulated-8b", "max_model_len": 9000}]},
            "/health": {"replicas": [{"url": url} for url in URLS]},
            "/loadgen/calls": {"calls": [dict(CALL)] if "8002" in url else []},
            # The first engine refuses once.
            "/reset_prefix_cache": {"success": asked.count(("POST", url)) > 1 or url != refused},
            "/weft/policy": {"secret": headers and headers["x-weft-secret"], "body": json},
        }
        if path == "/metrics":
            return httpx.Response(200, text=METRICS)
        asked[-1] += (answers[path],) if path == "/weft/policy" else ()
        return httpx.Response(200, json=answers[path], request=httpx.Request(method, url))

    monkeypatch.setattr(module, "local_stack", started)
    monkeypatch.setattr(module.httpx, "request", request)
    monkeypatch.setattr(module.httpx, "get", lambda url, **_: request("GET", url))
    return lines, asked


def test_emulated_engines_of_both_kinds_are_started_with_the_same_sizes(stacks):
    lines, _ = stacks
    options = PeersOptions("/x", replicas=2, dilate=2.0, kv_blocks=500)
    with replicas(options, ("weft", "stock")) as by:
        assert [(name, one.scheduler) for name, one in by.items()] == [(n, n) for n in by]
        assert {one.urls for one in by.values()} == {URLS}
        assert {one.context for one in by.values()} == {500 * 16}
        assert by["stock"].place.cost == by["stock"].shapes[0].cost
    (ours, our_variables), (stock, stock_variables) = lines
    assert ours == [word if word != "stock" else "weft" for word in stock]
    told, passed = " ".join(stock).split(" -- ")
    assert told == "--replicas 2 --emulated --preset 8b-a100 --dilate 2 --scheduler stock"
    assert passed.startswith("--max-num-seqs 4 --num-gpu-blocks-override 500 ")
    # The endpoint that empties the cache of stock vLLM needs this variable.
    assert stock_variables["VLLM_SERVER_DEV_MODE"] == "1"
    assert "VLLM_SERVER_DEV_MODE" not in our_variables


def test_all_engines_get_the_same_host_memory(stacks):
    lines, _ = stacks
    with replicas(PeersOptions("/x", host_kv_gib=2.5), ("weft", "stock")):
        assert all("--kv-offloading-size 2.5 " in " ".join(line) for line, _ in lines)
    with replicas(PeersOptions("/x"), ("weft",)):
        assert "--kv-offloading-size" not in lines[-1][0]


def test_real_engines_all_have_the_plugin(stacks):
    lines, _ = stacks
    with replicas(PeersOptions("/x", engines="real", kv_blocks=500), ("weft", "stock")) as by:
        assert by["weft"] is by["stock"]
        assert (by["weft"].scheduler, by["weft"].shapes) == ("weft", ())
        assert by["weft"].device_seconds() == (0.0, 0.0)
    assert len(lines) == 1
    assert "--emulated" not in lines[0][0]


def test_engines_on_a_gpu_have_a_shape_and_the_blocks_that_they_report(stacks):
    lines, _ = stacks
    options = PeersOptions("/x", engines="gpu", shape="1b", kv_blocks=0, more=("--enforce-eager",))
    with replicas(options, ("weft", "stock")) as by:
        assert by["weft"] is by["stock"]
        assert (by["weft"].place.kv_tokens, by["weft"].context) == (2000 * 16, 9000)
    ((line, _),) = lines
    assert line[line.index("--load-format") + 1] == "dummy"
    assert "--num-gpu-blocks-override" not in line
    assert line[-1] == "--enforce-eager"


def test_a_reset_sets_the_order_of_the_plugin_and_empties_every_cache_and_log(stacks):
    lines, asked = stacks
    with replicas(PeersOptions("/x"), ("weft", "stock")) as by:
        asked.clear()
        by["weft"].reset("plas")
        secret = lines[0][1]["WEFT_ENGINE_SECRET"]
        told = {"secret": secret, "body": {"policy": "plas", "reset_cache": True}}
        expected = []
        for url in URLS:
            expected += [("POST", f"{url}/weft/policy", told), ("DELETE", f"{url}/loadgen/calls")]
        assert asked == expected
        asked.clear()
        by["stock"].reset("fcfs")
    assert [url for _, url in asked] == [
        f"{URLS[0]}/reset_prefix_cache?reset_external=true",
        f"{URLS[0]}/reset_prefix_cache?reset_external=true",
        f"{URLS[0]}/loadgen/calls",
        f"{URLS[1]}/reset_prefix_cache?reset_external=true",
        f"{URLS[1]}/loadgen/calls",
    ]


def test_a_cache_that_stays_full_is_an_error(monkeypatch, stacks):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    with replicas(PeersOptions("/x"), ("stock",)) as by, pytest.raises(StackError, match="empty"):
        by["stock"].reset("fcfs")


def test_answers_have_their_replica_and_devices_their_seconds(stacks):
    with replicas(PeersOptions("/x"), ("weft",)) as by:
        found: Replicas = by["weft"]
        assert found.answers() == {"a": Answer(1, 64, 32, 3, 0.5)}
        assert found.device_seconds() == (4.0, 0.5)


def test_each_engine_gets_its_preset(stacks):
    lines, _ = stacks
    options = PeersOptions("/x", replicas=3, preset="8b-a100,8b-a100,8b-l40", kv_blocks=500)
    with replicas(options, ("stock",)) as by:
        names = [preset(name).cost for name in ("8b-a100", "8b-a100", "8b-l40")]
        assert [shape.cost for shape in by["stock"].shapes] == names
        assert {shape.kv_blocks for shape in by["stock"].shapes} == {500}
    assert "--replicas 3 --emulated --preset 8b-a100,8b-a100,8b-l40 " in " ".join(lines[0][0])
