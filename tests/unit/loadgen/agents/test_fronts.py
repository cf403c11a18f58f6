"""The real systems of a curve, and their settings."""

from __future__ import annotations

import json

import pytest
from weft_bench.agents.fronts import SESSION_HEADERS, Place, fronts, scheduling
from weft_bench.agents.systems import PROGRAMS, STOCK, VLLM_STICKY
from weft_engine.emulated.presets import preset
from weft_engine.step_cost import attention_pairs
from weft_gateway.programs import aliases

PLACE = Place(48_000, 0.2, preset("8b-a100").cost)
SYSTEMS = fronts(PLACE, ("resident", "slack"))
RIVALS = {name: one for name, one in SYSTEMS.items() if one.proxy is not None}
ENGINES = ["http://127.0.0.1:1", "http://127.0.0.1:2"]


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_gets_both_engines_its_port_and_a_pinned_version(name, tmp_path):
    proxy = RIVALS[name].proxy
    command = proxy.command(tmp_path, ENGINES, 7000, tmp_path)
    assert all(url in command for url in ENGINES)
    assert "7000" in command
    assert "==" in proxy.requirement


def test_weft_plays_each_order():
    orders = [one.order for one in SYSTEMS.values() if one.proxy is None]
    assert orders == ["resident", "slack"]


def test_weft_reads_one_of_the_headers_with_the_session():
    ours = {row.text for row in aliases.HEADERS if row.decides is aliases.Decides.PROGRAM}
    assert ours & set(SESSION_HEADERS)


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
    plain = scheduling(Place(1000))
    assert "prefill_cost_model" not in plain
    assert plain["metrics_interval_seconds"] == 1
    # The polling interval has a minimum at any speed of the engines' clocks.
    assert scheduling(Place(1, 1e-6))["metrics_interval_seconds"] == pytest.approx(0.05)


def test_program_scheduling_configuration_is_in_the_command(tmp_path):
    command = RIVALS[PROGRAMS].proxy.command(tmp_path, ENGINES, 1, tmp_path)
    text = command[command.index("--program-scheduling-config-json") + 1]
    assert json.loads(text) == scheduling(PLACE)
    for name in (VLLM_STICKY, STOCK):
        plain = RIVALS[name].proxy.command(tmp_path, ENGINES, 1, tmp_path)
        assert "--enable-program-scheduling" not in plain
