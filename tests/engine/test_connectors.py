"""The plugin with other KV connectors, several API servers and several machines."""

from __future__ import annotations

from typing import Any

import pytest
from weft_engine.block_metadata import PINNED
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand
from weft_engine.tags import Tag

pytestmark = pytest.mark.engine

DELAYING = {"kv_connector": "DelayingConnector", "kv_connector_module_path": "delaying"}
PROMPT = list(range(64))


def transfer(**options: Any) -> Any:
    from vllm.config import KVTransferConfig

    return KVTransferConfig(kv_role="kv_both", **options)


def sent(e: Any, *names: str) -> None:
    """The connector has sent the blocks of finished requests."""
    from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

    done = KVConnectorOutput(finished_sending=set(names))
    result = ModelRunnerOutput(
        req_ids=[], req_id_to_index={}, sampled_token_ids=[], kv_connector_output=done
    )
    e.scheduler.update_from_output(e.scheduler.schedule(), result)


def test_hints_hold_where_a_connector_frees_blocks_later(engine):
    """The call's report says `applied`, and the hint is applied."""
    e = engine(policy="resident", transfer=transfer(**DELAYING))
    scheduler = e.scheduler
    e.add("c", program="P", prompt=PROMPT, tokens=2, service=1.0,
          extra={"weft_tags": [64, int(Tag.SYSTEM_PROMPT)], "weft_retain": 100.0})  # fmt: skip
    scheduler._residents._pace.note(1000, 1, 1.0)
    while not e.reports:
        e.step()
    e.land_all()
    assert e.reports[0].hints == ("weft_tags=applied", "weft_retain=applied")
    assert "c" in scheduler.requests
    for _ in range(2):
        state = scheduler.state()
        assert state["kv"]["blocks_by_tag"]["SYSTEM_PROMPT"] == 4
        assert state["kv"]["pinned_blocks"] == 4
        assert state["kept_blocks"] > 0
        sent(e, *list(scheduler.requests))
    assert not scheduler.requests
    assert scheduler.violations() == []
    # The blocks are in the tier of pinned blocks.
    homes = scheduler._eviction.policy.homes(scheduler._eviction._queue.get_all_free_blocks())
    assert [tier for _, tier in homes].count(PINNED) == 4


def multi(engine: Any, **settings: Any) -> Any:
    from harness import swap_transfer

    ours = swap_transfer(40)
    swap = {
        name: getattr(ours, name)
        for name in ("kv_connector", "kv_connector_module_path", "kv_connector_extra_config")
    }
    both = [{"kv_role": "kv_both", **part} for part in (swap, DELAYING)]
    return engine(
        policy="plas", max_num_seqs=1, blocks=30, **settings,
        transfer=transfer(
            kv_connector="MultiConnector", kv_connector_extra_config={"connectors": both}
        ),
    )  # fmt: skip


def test_our_connector_saves_inside_a_multi_connector(engine):
    e = multi(engine, swap_gib=0.001)
    e.add("c", prompt=list(range(60)), tokens=30)
    for _ in range(5):
        e.step()
    scheduler = e.scheduler
    scheduler.preempt(scheduler.requests["c"], scheduler.clock())
    assert scheduler.state()["swap"]["swapped_out"] > 0


@pytest.mark.parametrize("connector", [None, DELAYING], ids=["none", "another"])
def test_a_swap_without_our_connector_is_refused_at_start(engine, connector):
    with pytest.raises(ValueError, match="swap_gib is set, but the engine has"):
        engine(swap_gib=1.0, transfer=connector and transfer(**connector))


def servers(config: Any) -> None:
    config.parallel_config._api_process_count = 3


def machines(config: Any) -> None:
    config.parallel_config.data_parallel_size = 4
    config.parallel_config.data_parallel_size_local = 2


def machines_apart(config: Any) -> None:
    machines(config)
    config.parallel_config.data_parallel_hybrid_lb = True


@pytest.mark.parametrize(
    ("change", "reason"),
    [(servers, "add --api-server-count 1"), (machines, "2 engine cores run on other machines")],
)
def test_settings_that_lose_reports_are_refused_at_start(engine, tmp_path, change, reason):
    with pytest.raises(ValueError, match=reason):
        engine(change=change, channel=f"ipc://{tmp_path}/c")
    # Without a channel, no report can get lost.
    engine(change=change)


def test_machines_with_separate_servers_are_served(engine, tmp_path):
    e = engine(change=machines_apart, channel=f"ipc://{tmp_path}/c")
    e.scheduler.shutdown()


def test_a_prompt_that_another_engine_has_computed_takes_all_of_its_blocks(engine):
    e = engine(policy="resident")
    e.add("runs", prompt=PROMPT, tokens=9)
    e.step()
    for name in ("near", "far"):
        e.add(name, prompt=PROMPT, tokens=2)
    e.scheduler.requests["far"].kv_transfer_params = {"do_remote_prefill": True}
    assert e.scheduler.blocks_to_take("near") == 1
    assert e.scheduler.blocks_to_take("far") == 4


@pytest.mark.parametrize("cached", [0, 1, 15, 16, 100, 126])
def test_a_context_is_looked_up_by_its_boundary(engine, cached, monkeypatch):
    """The result equals vLLM's, with a few lookups instead of one per block."""
    e = engine(policy="resident", blocks=400, step_tokens=4096)
    prompt = list(range(16 * 127))
    if cached:
        e.add("runs", prompt=prompt[: 16 * cached], tokens=9)
        e.step()
    e.add("again", prompt=prompt, tokens=1)
    scheduler = e.scheduler
    manager, request = scheduler.kv_cache_manager, scheduler.requests["again"]
    asked = 0
    found = manager.block_pool.get_cached_block

    def counted(*args: Any) -> Any:
        nonlocal asked
        asked += 1
        return found(*args)

    wanted = scheduler.blocks_needed(request, 0)
    monkeypatch.setattr(manager.block_pool, "get_cached_block", counted)
    assert scheduler.blocks_to_take("again") == wanted == 127 - cached
    assert asked <= 16


def test_a_context_whose_middle_was_evicted_is_looked_up(engine):
    e = engine(policy="resident", blocks=400, step_tokens=4096)
    prompt = list(range(16 * 127))
    e.add("before", prompt=prompt, tokens=1)
    e.run()
    e.add("again", prompt=prompt, tokens=1)
    scheduler = e.scheduler
    pool = scheduler.kv_cache_manager.block_pool
    for at in range(1, 8):
        (block,) = pool.get_cached_block(scheduler.requests["again"].block_hashes[at], [0])
        assert pool._maybe_evict_cached_block(block)
    assert scheduler.blocks_to_take("again") == 127


def test_blocks_in_use_are_not_needed_again(engine):
    e = engine(policy="resident", blocks=400, step_tokens=4096)
    prompt = list(range(16 * 40))
    e.add("done", prompt=prompt, tokens=1)
    e.run()
    e.add("runs", prompt=prompt[: 16 * 25], tokens=9)
    e.step()
    e.add("waits", prompt=prompt, tokens=1)
    assert e.scheduler.blocks_to_take("waits") == 40 - 24


def test_advice_waits_until_a_step_has_run_where_one_is_on_the_device(engine):
    """A command takes time in proportion to a context, so it must not delay the device's next
    step."""
    e = engine(policy="plas")
    e.add("c", program="P", prompt=PROMPT, tokens=9)
    e.step()
    e.add("d", prompt=PROMPT, tokens=9)
    commands = [Command(kv=KvCommand("retain", "P", ttl_s=100.0))]
    policy = e.scheduler._eviction.policy

    class Channel:
        def take_commands(self) -> list[Command]:
            return [commands.pop()] if commands else []

    e.scheduler._link = Channel()
    flying = bool(e.scheduler._steps)
    output = e.scheduler.schedule()
    assert len(policy.pins) == (0 if flying else 1)
    e._flying.append((output, dict.fromkeys(output.num_scheduled_tokens, 7)))
    e.land_all()
    assert len(policy.pins) == 1
    e.scheduler._link = None
    e.run()
