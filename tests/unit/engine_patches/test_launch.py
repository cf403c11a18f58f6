"""The flags that `weft replica` gives to vLLM."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from weft_engine import launch, model_options
from weft_engine.launch import arguments, environment


def line(gpu=False, extra=()):
    return arguments("m", "h", 1, "plas", "ipc://x", extra, gpu)


@pytest.mark.parametrize(
    ("model", "parser"),
    [
        ("Qwen/Qwen3-8B", "hermes"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3_json"),
        ("openai/gpt-oss-20b", "openai"),
    ],
)
def test_calls_with_tools_work_without_an_option(model, parser):
    flags = arguments(model, "h", 1, "plas", "ipc://x", [], True)
    assert flags[flags.index("--enable-auto-tool-choice") + 1 :][:2] == [
        "--tool-call-parser",
        parser,
    ]
    own = ["--enable-auto-tool-choice", "--tool_call_parser=mine"]
    flags = arguments(model, "h", 1, "plas", "ipc://x", own, True)
    assert [flag for flag in flags if "tool" in flag] == own


def test_a_model_in_a_folder_has_the_name_of_the_folder_and_the_parser_of_its_family(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    flags = arguments(str(folder), "h", 1, "plas", "ipc://x", [], True)
    assert flags[flags.index("--served-model-name") + 1] == "my-model"
    assert flags[flags.index("--tool-call-parser") + 1] == "hermes"
    named = arguments(str(folder), "h", 1, "plas", "ipc://x", ["--served-model-name", "a"], True)
    assert named.count("--served-model-name") == 1


def test_an_unknown_family_is_reported_and_an_embedding_model_is_not(capsys):
    assert "--tool-call-parser" not in line()
    assert "no parser of tool calls is known for m" in capsys.readouterr().err
    arguments("Qwen/Qwen3-Embedding-8B", "h", 1, "plas", "ipc://x", [], True)
    assert capsys.readouterr().err == ""


def test_vllm_has_every_parser():
    (folder,) = find_spec("vllm").submodule_search_locations
    known = Path(folder, "tool_parsers", "__init__.py").read_text()
    assert all(f'"{parser}": (' in known for _, parser in model_options._PARSERS if parser)


def test_the_plugin_is_loaded_by_official_flags():
    flags = line()
    assert flags[flags.index("--scheduler-cls") + 1] == "weft_engine.scheduler.WeftScheduler"
    config = json.loads(flags[flags.index("--additional-config") + 1])
    assert config["weft"] == {"policy": "plas", "channel": "ipc://x"}


def test_arguments_of_the_user_come_last():
    assert line(extra=["--max-num-seqs", "4"])[-2:] == ["--max-num-seqs", "4"]


@pytest.mark.parametrize("gpu", [False, True])
def test_engines_report_cached_tokens(gpu):
    option = "--enable-prompt-tokens-details"
    assert option in line(gpu)
    # A user can turn it off.
    off = line(gpu, extra=["--no-enable-prompt-tokens-details"])
    assert off.index(option) < off.index("--no-enable-prompt-tokens-details")


def test_cpu_flags_stay_on_the_cpu():
    assert "--enforce-eager" in line()
    assert "--enforce-eager" not in line(gpu=True)
    assert line()[line().index("--worker-cls") + 1] == "weft_engine.compat_cpu.CpuWorker"
    assert "--worker-cls" not in line(gpu=True)
    assert "OMP_NUM_THREADS" not in environment(gpu=True)


@pytest.mark.parametrize("gpu", [False, True])
def test_answers_are_stored_so_that_they_can_be_continued(gpu, monkeypatch):
    assert environment(gpu)["VLLM_ENABLE_RESPONSES_API_STORE"] == "1"
    monkeypatch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "0")
    assert environment(gpu)["VLLM_ENABLE_RESPONSES_API_STORE"] == "0"


def test_variables_that_are_set_already_are_kept(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    assert environment(gpu=False)["VLLM_CPU_KVCACHE_SPACE"] == "7"


def test_options_of_the_order_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("WEFT_ORDER_OPTIONS", '{"queues": 3}')
    flags = line()
    config = json.loads(flags[flags.index("--additional-config") + 1])
    assert config["weft"]["options"] == {"queues": 3}


def test_settings_of_the_plugin_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("WEFT_ENGINE_SETTINGS", '{"max_displacements": 1, "policy": "fcfs"}')
    flags = line()
    config = json.loads(flags[flags.index("--additional-config") + 1])
    # The policy is the command line's.
    assert config["weft"] == {"max_displacements": 1, "policy": "plas", "channel": "ipc://x"}


@pytest.mark.parametrize("text", ["{", "[]", "5"])
@pytest.mark.parametrize("variable", ["WEFT_ENGINE_SETTINGS", "WEFT_ORDER_OPTIONS"])
def test_a_variable_that_is_no_object_is_named(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=variable):
        line()


def test_with_a_host_buffer_the_connector_is_loaded(monkeypatch):
    assert "--kv-transfer-config" not in line()
    monkeypatch.setenv(
        "WEFT_ENGINE_SETTINGS", '{"swap_gib": 2, "swap_share": 0.5, "swap_async": true}'
    )
    flags = line()
    config = json.loads(flags[flags.index("--kv-transfer-config") + 1])
    assert config["kv_connector_module_path"] == "weft_engine.swap.connector"
    assert config["kv_connector_extra_config"] == {
        "swap_gib": 2,
        "tenant_share": 0.5,
        "load_async": True,
    }


def test_another_release_of_vllm_is_refused_before_anything_starts(monkeypatch, capsys):
    monkeypatch.setattr(launch, "installed_version", lambda: "0.31.0")
    monkeypatch.setattr(os, "environ", {})
    status = launch.run(model="m", host="127.0.0.1", port=1, policy="fcfs", extra=())
    assert status == 2
    assert "found vLLM 0.31.0" in capsys.readouterr().err
