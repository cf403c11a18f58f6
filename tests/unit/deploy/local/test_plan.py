"""The processes that `weft up` starts."""

from __future__ import annotations

import pytest
from weft_deploy.local import demo_model, plan
from weft_deploy.local.plan import Emulated, OptionError, UpOptions


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"policy": "lottery"}, "--policy"),
        ({"balancer": "dice"}, "balancer"),
        ({"attach": ("http://a", "http://a/v1")}, "replicas"),
        ({"attach": ("a:8001",)}, "replicas"),
        ({"redis_url": "h:6379"}, "redis_url"),
        ({"emulated": Emulated("8b-a100,8b-b200")}, "8b-b200"),
        ({"emulated": Emulated(dilate=0)}, "--dilate"),
        ({"emulated": Emulated(scheduler="plain")}, "--scheduler"),
    ],
)
def test_an_invalid_option_is_in_the_error(options, name):
    with pytest.raises(OptionError, match=name):
        plan.check(UpOptions(**options))


def test_the_demo_model_is_served_offline_under_its_name():
    start = plan.replica(UpOptions(), 0, 9000, "/demo", "s", gpus=0)
    assert start.environment["HF_HUB_OFFLINE"] == "1"
    assert "weft-demo" in start.command
    assert start.ready_url == "http://127.0.0.1:9000/health"


def test_the_demo_model_accepts_the_prompts_of_coding_agents():
    command = plan.replica(UpOptions(), 0, 9000, "/demo", "s", gpus=0).command
    length = int(command[command.index("--max-model-len") + 1])
    # vLLM refuses a context longer than the model's positions.
    assert 49_152 <= length <= demo_model.CONFIG["max_position_embeddings"]


def test_a_small_kv_cache_makes_the_demos_context_smaller():
    options = UpOptions(engine_arguments=("--num-gpu-blocks-override", "300"))
    command = plan.replica(options, 0, 9000, "/demo", "s", gpus=0).command
    assert command[command.index("--max-model-len") + 1] == "9568"


def test_emulated_engines_get_the_presets_in_turn():
    options = UpOptions(replicas=3, emulated=Emulated("8b-a100, 8b-l40", 2.0))
    starts = [plan.replica(options, n, 9000, "/demo", "s", gpus=2) for n in range(3)]
    found = [s.command[s.command.index("--preset") + 1] for s in starts]
    assert found == ["8b-a100", "8b-l40", "8b-a100"]
    assert starts[0].environment["HF_HUB_OFFLINE"] == "1"
    # The preset decides about memory and context, and no GPU is used.
    assert "CUDA_VISIBLE_DEVICES" not in starts[0].environment
    assert "--gpu-memory-utilization" not in starts[0].command
    assert "--max-model-len" not in starts[0].command


def test_a_users_model_gets_vllms_own_defaults():
    start = plan.replica(UpOptions(model="org/name"), 0, 9000, "org/name", "s", gpus=0)
    assert "--served-model-name" not in start.command
    assert "HF_HUB_OFFLINE" not in start.environment


def test_engines_share_gpus_in_turn():
    options = UpOptions(replicas=3, model="m")
    starts = [plan.replica(options, n, 9000, "m", "s", gpus=2) for n in range(3)]
    assert [s.environment["CUDA_VISIBLE_DEVICES"] for s in starts] == ["0", "1", "0"]
    assert "0.45" in starts[0].command
    alone = plan.replica(UpOptions(replicas=2, model="m"), 0, 9000, "m", "s", gpus=2)
    assert "--gpu-memory-utilization" not in alone.command


def test_the_gateway_gets_engines_and_options():
    options = UpOptions(redis_url="redis://:pass@h", balancer="least_used", port=9)
    start = plan.gateway(options, ["http://a", "http://b"], "s")
    command = start.command
    assert command.count("--replica") == 2
    # Not an argument, because the process list shows arguments.
    assert start.environment == {"WEFT_ENGINE_SECRET": "s", "WEFT_REDIS_URL": "redis://:pass@h"}
    assert "pass" not in " ".join(command)
    assert command[command.index("--balancer") + 1] == "least_used"


def test_attached_engines_may_have_names(monkeypatch):
    monkeypatch.setenv("WEFT_REPLICAS", "http://of-another-gateway")
    options = UpOptions(attach=("gpu-0=http://a:1/v1", "http://b:2"))
    assert plan.check(options).replica_urls == {"gpu-0": "http://a:1", "b:2": "http://b:2"}
    assert "gpu-0=http://a:1/v1" in plan.gateway(options, options.attach, "").command


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:5"), ("::", "http://[::1]:5"), ("::1", "http://[::1]:5")],
)
def test_the_base_url_can_be_reached_from_here(host, url):
    assert settings(host=host, port=5).base_url == url


def settings(**options):
    return plan.check(UpOptions(**options))
