"""Preemption and admission on vLLM's real scheduler: calls that vLLM would refuse preempt none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from grammar import Counting
from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.interface import PauseState

pytestmark = pytest.mark.engine

OPTIONS = {"first_quantum_s": 4.0, "growth": 2.0, "queues": 4}
# Orders, and the tenants whose calls preempt those of the tenant "".
PREEMPTING = [("plas", ""), ("plas", "another"), ("resident", "another")]


def heavy_runs(e: Any, tokens: int = 30) -> None:
    e.add("heavy", service=1e6, tokens=tokens)
    e.step()
    e.step()


def displacements(e: Any) -> int:
    return int(e.scheduler.state()["displacements"])


@pytest.mark.parametrize(("policy", "tenant"), PREEMPTING)
@pytest.mark.parametrize("state", [PauseState.PAUSED_NEW, PauseState.PAUSED_ALL])
def test_a_paused_engine_preempts_no_call(engine, policy, tenant, state):
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=2)
    heavy_runs(e)
    e.add("heavier", service=1e6, tokens=30)
    e.step()
    e.scheduler.set_pause_state(state)
    for number in range(3):
        e.add(f"light{number}", tokens=2, tenant=tenant)
    for _ in range(3):
        e.step()
    assert displacements(e) == 0
    assert len(e.scheduler.running) == 2
    e.scheduler.set_pause_state(PauseState.UNPAUSED)
    e.run()
    assert displacements(e) > 0
    assert len(e.tokens["heavy"]) == 30


@pytest.mark.parametrize(("policy", "tenant"), PREEMPTING)
def test_a_call_preempts_none_while_its_grammar_is_compiled(engine, policy, tenant):
    e = engine(policy=policy, options=OPTIONS, max_num_seqs=2)
    heavy_runs(e)
    e.add("heavier", service=1e6, tokens=30)
    e.step()
    e.add("light", tokens=2, grammar=True, tenant=tenant)
    asked = e.scheduler.requests["light"].structured_output_request
    asked.grammar = None
    for _ in range(3):
        e.step()
    assert displacements(e) == 0
    asked.grammar = Counting()
    e.run()
    assert e.reports[0].call == "light"
    assert displacements(e) == 1


def test_a_ready_call_behind_one_that_is_not_ready_is_not_kept_waiting(engine):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=1)
    heavy_runs(e)
    e.add("compiling", tokens=2, grammar=True)
    asked = e.scheduler.requests["compiling"].structured_output_request
    asked.grammar = None
    e.add("ready", tokens=2)
    for _ in range(6):
        e.step()
    assert [r.call for r in e.reports] == ["ready"]
    asked.grammar = Counting()
    e.run()


@pytest.mark.parametrize("tenant", ["", "another"])
def test_a_call_whose_adapter_does_not_fit_preempts_no_call(engine, tenant):
    e = engine(policy="plas", options=OPTIONS, max_num_seqs=3)
    e.scheduler.lora_config = SimpleNamespace(max_loras=1)

    def add(name: str, adapter: int, **options: Any) -> None:
        e.add(name, **options)
        e.scheduler.requests[name].lora_request = LoRARequest(f"a{adapter}", adapter, "/adapter")

    for number in range(3):
        add(f"heavy{number}", 1, service=1e6, tokens=20)
    e.step()
    e.step()
    add("other", 2, tokens=2, tenant=tenant)
    for _ in range(4):
        e.step()
    assert displacements(e) == 0
    add("same", 1, tokens=2, tenant=tenant)
    for _ in range(6):
        e.step()
    assert displacements(e) == 1
    e.run()
    assert {len(e.tokens[f"heavy{number}"]) for number in range(3)} == {20}


def test_blocks_of_all_groups_of_layers_are_counted(engine):
    """Three groups: a call of 700 tokens takes 132 blocks instead of 44. The two running calls hold
    fewer together, so no call is preempted."""
    options = {**OPTIONS, "first_quantum_s": 1000.0}
    e = engine(policy="plas", options=options, max_num_seqs=8, blocks=170, windows=2)
    e.add("heavy", service=1e6, prompt=list(range(240)), tokens=40)
    e.add("heavier", service=1e7, prompt=list(range(300, 500)), tokens=40)
    e.add("best", prompt=list(range(1000, 1200)), tokens=60)
    for _ in range(3):
        e.step()
    scheduler = e.scheduler
    e.add("light", prompt=list(range(2000, 2700)), tokens=2)
    waiting = scheduler.requests["light"]
    assert scheduler.blocks_needed(waiting, 0) == 132
    for _ in range(4):
        e.step()
    assert displacements(e) == 0
    e.run()
    assert len(e.tokens["light"]) == 2


def test_vllms_watermark_counts_as_taken(engine):
    options = {**OPTIONS, "first_quantum_s": 1000.0}
    e = engine(policy="plas", options=options, max_num_seqs=8, blocks=41)
    e.add("best", prompt=list(range(300)), tokens=40)
    e.add("heavy", service=1e6, prompt=list(range(1000, 1100)), tokens=40)
    for _ in range(3):
        e.step()
    e.scheduler.kv_cache_manager.watermark_blocks = 16
    # 13 blocks are free, and the heavy call holds 7: enough without the watermark.
    e.add("light", prompt=list(range(2000, 2260)), tokens=2)
    for _ in range(4):
        e.step()
    assert displacements(e) == 0
    e.run()
    assert len(e.tokens["light"]) == 2


def test_short_of_blocks_few_waiting_calls_are_looked_up(monkeypatch):
    """Most of 200 calls with contexts of about 8,000 tokens wait for blocks. vLLM's lookup takes
    time in proportion to the context, so a step makes less than one on average."""
    from weft_bench.micro.scheduler.command import OURS
    from weft_bench.micro.scheduler.scene import Load, replicas

    replica = replicas(Load(running=40, waiting=200, context=8000, blocks=5000), "plas")[OURS]
    for _ in range(100):
        replica.step()
    looked_up: list[str] = []
    blocks_to_take = replica.scheduler.blocks_to_take

    def counted(name: str) -> int:
        looked_up.append(name)
        return int(blocks_to_take(name))

    monkeypatch.setattr(replica.scheduler, "blocks_to_take", counted)
    admitted = [replica.step().admitted for _ in range(200)]
    assert 0 < len(looked_up) < 200
    assert sum(admitted) > 10
