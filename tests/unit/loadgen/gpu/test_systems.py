"""The differences between the systems."""

from __future__ import annotations

import json
from pathlib import Path

from weft_bench.gpu.systems import (
    PLAYED,
    SYSTEMS,
    EngineOptions,
    engine_command,
    engine_environment,
    gateway_command,
)
from weft_bench.report.gpu import BASELINES, OURS

MODEL = Path("/models/8b")
OWN = ("--policy", "--enable-prefix-caching", "--no-enable-prefix-caching", "mlfq", "plas")


def line(name, device="cuda", **options):
    return engine_command(SYSTEMS[name], EngineOptions(**options), MODEL, 8001, device)


def test_all_systems_are_played_and_reported():
    assert set(PLAYED) == set(SYSTEMS) == {*BASELINES, OURS}


def test_baselines_are_vllm_without_the_plugin():
    for name in ("vllm", "vllm-opt"):
        assert "weft_engine.launch" in line(name)
        assert "WEFT_ENGINE_SETTINGS" not in engine_environment(SYSTEMS[name], EngineOptions())
    assert "--no-enable-prefix-caching" in line("vllm")
    assert "--enable-prefix-caching" in line("vllm-opt")


def test_the_engine_is_alike_in_everything_else():
    common = []
    for name in SYSTEMS:
        found = line(name, kv_blocks=700, more=("--enforce-eager",))
        common.append([word for word in found[found.index("--model") :] if word not in OWN])
    assert all(each == common[0] for each in common)
    assert common[0][-1] == "--enforce-eager"
    assert "--load-format dummy" in " ".join(common[0])


def test_weft_uses_its_default_order_unless_one_is_named():
    assert "--policy" not in line("ours")
    ours = line("ours", policy="atlas")
    assert ours[ours.index("--policy") + 1] == "atlas"
    mlfq = line("mlfq", policy="atlas")
    assert mlfq[mlfq.index("--policy") + 1] == "mlfq"


def test_only_weft_has_tags_and_locality_and_preempting_systems_have_swap():
    def settings(name, **options):
        found = engine_environment(SYSTEMS[name], EngineOptions(**options))
        return json.loads(found["WEFT_ENGINE_SETTINGS"])

    assert settings("ours", swap_gib=4) == {"tags": True, "swap_gib": 4}
    assert settings("mlfq", swap_gib=4) == {"tags": False, "swap_gib": 4}
    assert settings("ours", swap_gib=0) == {"tags": True}
    balancers = {n: gateway_command(s, "http://e", 1)[-3] for n, s in SYSTEMS.items()}
    assert balancers.pop("ours") == "locality"
    assert set(balancers.values()) == {"round_robin"}


def test_memory_share_applies_to_gpus():
    assert "--gpu-memory-utilization" in line("ours")
    assert "--gpu-memory-utilization" not in line("ours", device="cpu")


def test_experiments_are_enabled_only_to_measure_swaps():
    ours = SYSTEMS["ours"]
    assert "experiments" not in engine_environment(ours, EngineOptions())["WEFT_ORDER_OPTIONS"]
    options = engine_environment(ours, EngineOptions(), experiments=True)["WEFT_ORDER_OPTIONS"]
    assert json.loads(options)["experiments"] is True
