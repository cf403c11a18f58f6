"""vLLM's counters, read from its metrics page."""

from __future__ import annotations

import httpx
import pytest
from support.serving import client_of
from weft_bench.gpu import engine
from weft_bench.gpu.engine import Counts, EngineError, cache_of, cause, counts_of, fresh, series

PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} %d
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0"} 0.0
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0"} 300.0
vllm:prefix_cache_queries_total{engine="1"} 100.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0"} 40.0
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0"} 2.0
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0"} 400.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0"} 50.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="700"} 1.0
"""
IDLE = PAGE % 0


def test_counts_are_summed_over_engines():
    assert counts_of(IDLE) == Counts(400, 40, 2, 400, 50)
    assert counts_of(IDLE).since(Counts(100, 10, 2, 1, 1)) == Counts(300, 30, 0, 399, 49)
    assert series(IDLE)["vllm:prefix_cache_queries_total"] == 400


def test_cache_size_is_read():
    assert cache_of(IDLE) == (700, 16)


@pytest.mark.parametrize("page", ["", "up 1\n", 'vllm:cache_config_info{block_size="16"} 1.0\n'])
def test_page_without_vllms_samples_is_an_error(page):
    with pytest.raises(EngineError, match="vllm:"):
        counts_of(page)
    with pytest.raises(EngineError, match="cache_config_info"):
        cache_of(page)


def test_cause_of_a_failed_start_comes_first(tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("""\
Found ulimit of 20000. This can cause errors like `OSError: [Errno 24] Too many open files`.
(EngineCore) ValueError: no available memory for the cache blocks
(EngineCore) more of the traceback
(EngineCore) ValueError: no available memory for the cache blocks
RuntimeError: Engine core initialization failed. See root cause above.
""")
    first, second, *_ = cause(log).splitlines()
    assert first == "ValueError: no available memory for the cache blocks"
    assert second.startswith("RuntimeError: Engine core")
    log.write_text("loading weights ...\n")
    assert "may be slow" in cause(log)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(engine, "_POLL_S", 0.0)


@pytest.mark.anyio
async def test_cache_is_cleared_once_the_engine_is_idle_and_confirms():
    pages = iter([PAGE % 2, IDLE, IDLE])
    confirms = iter([False, True])

    def vllm(request):
        if request.url.path == "/metrics":
            return httpx.Response(200, text=next(pages))
        assert request.method == "POST"
        assert request.url.raw_path == b"/reset_prefix_cache?reset_external=true"
        return httpx.Response(200, json={"success": next(confirms)})

    async with client_of(vllm) as client:
        await fresh(client)
    assert (list(pages), list(confirms)) == ([], [])


@pytest.mark.anyio
async def test_calls_that_never_end_are_an_error(monkeypatch):
    monkeypatch.setattr(engine, "_IDLE_S", 0.0)
    async with client_of(lambda request: httpx.Response(200, text=PAGE % 1)) as client:
        with pytest.raises(EngineError, match="busy"):
            await fresh(client)
