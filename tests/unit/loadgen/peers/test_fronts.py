"""Settings of the comparison's rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from weft_bench.peers.fronts import ROUND_ROBIN, SESSION_HEADERS, Place, fronts, scheduling
from weft_bench.peers.turns import slo_file
from weft_engine.emulated.presets import preset
from weft_engine.step_cost import attention_pairs
from weft_gateway.config import load
from weft_gateway.constants import Constants
from weft_gateway.programs import aliases

PLACE = Place("m", 48_000, 0.2, preset("8b-a100").cost)
ROWS = fronts(PLACE, ("fcfs", "plas"))
ENGINES = ["http://127.0.0.1:1", "http://127.0.0.1:2"]


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_every_front_gets_both_replicas_its_port_and_a_pinned_version(row, tmp_path):
    command = row.proxy.command(tmp_path, ENGINES, 7000, tmp_path)
    written = " ".join(command) + "".join(f.read_text() for f in tmp_path.iterdir())
    assert all(url in written for url in ENGINES)
    assert "7000" in command
    assert row.name.startswith("weft/") != ("==" in row.version)


def test_peers_and_round_robin_use_fcfs_and_weft_each_order():
    orders = {name: row.order for name, row in ROWS.items()}
    assert {order for name, order in orders.items() if not name.startswith("weft/")} == {"fcfs"}
    assert orders[ROUND_ROBIN] == orders["weft/fcfs"] == "fcfs"
    assert orders["weft/plas"] == orders["weft/plas/no-key"] == "plas"
    assert orders["weft/fcfs/at-home"] == "fcfs"


def test_peers_use_stock_engines_and_weft_those_with_the_plugin():
    for name, row in ROWS.items():
        assert row.scheduler == ("weft" if name.startswith("weft/") else "stock")


def test_calls_carry_the_same_headers_except_without_a_key():
    assert [name for name, row in ROWS.items() if not row.keyed] == ["weft/plas/no-key"]
    read = {row.reads for row in ROWS.values() if row.reads}
    assert read == set(SESSION_HEADERS)
    ours = {row.text for row in aliases.HEADERS if row.decides is aliases.Decides.PROGRAM}
    assert ROWS["weft/plas"].reads in ours


def test_weft_rows_are_set_by_existing_settings(monkeypatch, tmp_path):
    for name, value in ROWS[ROUND_ROBIN].proxy.environment.items():
        monkeypatch.setenv(name, value)
    assert load().balancer == "round_robin"
    line = ROWS["weft/fcfs/at-home"].proxy.command(tmp_path, ENGINES, 7000, tmp_path)
    assert Constants(**json.loads(line[3])).locality_threshold_tokens == 0


def test_only_orders_for_deadlines_get_the_targets_of_turns(tmp_path):
    rows = fronts(PLACE, ("slack", "resident"), targets=True)
    for name in ("weft/slack", "weft/resident"):
        line = rows[name].proxy.command(tmp_path, ENGINES, 7000, tmp_path)
        assert json.loads(line[3]) == {"auto_prefill": False}
        if name == "weft/resident":
            assert "--slo" not in line
            assert "--balancer" not in line
        else:
            file = Path(line[line.index("--slo") + 1])
            assert file.read_text() == slo_file()
            assert line[line.index("--balancer") + 1] == "soonest"
    plain = fronts(PLACE, ("slack",))["weft/slack"].proxy
    assert "--slo" not in plain.command(tmp_path, ENGINES, 7000, tmp_path)
    assert not plain.environment


def test_orders_of_the_paper_keep_its_balancers(tmp_path):
    rows = fronts(PLACE, ("urgency", "llf", "qlm"), targets=True)
    found = {}
    for name in ("urgency", "llf", "qlm"):
        line = rows[f"weft/{name}"].proxy.command(tmp_path, ENGINES, 7000, tmp_path)
        assert "--slo" in line
        found[name] = line[line.index("--balancer") + 1]
    assert found == {"urgency": "work", "llf": "round_robin", "qlm": "round_robin"}


def test_only_weft_gets_the_engine_secret():
    rows = fronts(replace(PLACE, secret="s"), ("plas",)).values()
    with_secret = {
        row.name for row in rows if row.proxy.environment.get("WEFT_ENGINE_SECRET") == "s"
    }
    assert with_secret == {row.name for row in rows if row.name.startswith("weft/")}


def test_program_scheduling_gets_the_engines_capacity_costs_and_pace():
    configuration = scheduling(PLACE)
    assert configuration["token_capacity_per_target"] == 48_000
    assert configuration["max_acting_ttl_seconds"] == pytest.approx(2)
    cost = PLACE.cost
    model = configuration["prefill_cost_model"]
    assert model["linear_seconds_per_1k_tokens"] == pytest.approx(200 * cost.prefill_token_s)
    # A prompt of 100,000 tokens as in the engines' cost model.
    quadratic = model["quadratic_seconds_per_1k_tokens_squared"]
    whole = attention_pairs(100_000, 0) * cost.prefill_pair_s
    assert 100**2 * quadratic == pytest.approx(0.2 * whole, rel=1e-4)
    plain = scheduling(Place("m", 1000))
    assert "prefill_cost_model" not in plain
    assert plain["metrics_interval_seconds"] == 1
    # The polling interval has a minimum at any speed of the engines' clocks.
    assert scheduling(Place("m", 1, 1e-6))["metrics_interval_seconds"] == pytest.approx(0.05)


def test_program_scheduling_configuration_is_in_the_command(tmp_path):
    command = ROWS["vllm-router/programs"].proxy.command(tmp_path, ENGINES, 1, tmp_path)
    text = command[command.index("--program-scheduling-config-json") + 1]
    assert json.loads(text) == scheduling(PLACE)
    plain = ROWS["vllm-router/cache_aware"].proxy.command(tmp_path, ENGINES, 1, tmp_path)
    assert "--enable-program-scheduling" not in plain
