"""Command lines of the engines of a play."""

from __future__ import annotations

import json

from weft_bench.agents.engines import STOCK, WEFT, Wanted, command_line
from weft_bench.agents.fronts import Place, fronts
from weft_bench.agents.live_plays import wanted_for
from weft_engine.emulated.engines import find
from weft_engine.emulated.presets import preset

SYSTEMS = fronts(Place(1000), ("slack",))


def test_emulated_engines_have_the_shape_of_virtual_time(tmp_path):
    shape = preset("8b-h100")
    line, _ = command_line(Wanted(2, shape, dilate=2.0, slots=8, more=("--x",)), tmp_path)
    assert find(line[line.index("--preset") + 1]) == shape
    assert line[:2] == ["--replicas", "2"]
    assert line[line.index("--dilate") + 1] == "2"
    own, extra = line[: line.index("--")], line[line.index("--") :]
    assert "--emulated" in own
    assert extra[extra.index("--max-num-seqs") + 1] == "8"
    assert extra[-1] == "--x"
    assert "--num-gpu-blocks-override" not in extra


def test_rivals_get_stock_engines_and_weft_its_order():
    wanted = Wanted(shape=preset("8b-h100"))
    for front in SYSTEMS.values():
        found = wanted_for(front, wanted)
        if front.proxy is None:
            assert (found.scheduler, found.policy) == (WEFT, "slack")
        else:
            assert found.scheduler == STOCK


def test_stock_on_a_gpu_is_the_plugin_with_vllms_order_and_eviction(tmp_path, monkeypatch):
    from weft_bench.agents import engines

    monkeypatch.setattr(engines.models, "write", lambda *_: None)
    line, variables = command_line(
        Wanted(model="8b", kv_blocks=12_000, scheduler=STOCK, host_gib=3.0), tmp_path
    )
    assert line[line.index("--policy") + 1] == "fcfs"
    assert json.loads(variables["WEFT_ENGINE_SETTINGS"]) == {"tags": False}
    assert line[line.index("--num-gpu-blocks-override") + 1] == "12000"
    assert line[line.index("--kv-offloading-size") + 1] == "3"
    ours, none = command_line(Wanted(model="8b"), tmp_path)
    assert ours[ours.index("--policy") + 1] == "resident"
    assert none == {}
