"""Files are small, public names are documented, nothing is half done, each has its test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.sources import PACKAGES, ROOT, public_definitions, sources

LONGEST = 400
FILES = sources(*PACKAGES)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
# What asyncio, httptools and uvicorn call; documented there.
CALLBACK = re.compile(
    r"\.(connection_(made|lost)|data_received|eof_received|(pause|resume)_writing"
    r"|on_(message_begin|url|status|header|headers_complete|body|message_complete|response_complete)"
    r"|timeout_keep_alive_handler)$"
)

# Modules without a unit test of their own, and where they are tested instead.
SERVED = "tests/system/gateway"
ELSEWHERE = {
    # Parts of the served application: they do nothing without a request on a socket.
    "gateway/api/admin.py": f"{SERVED}/test_routes.py",
    "gateway/api/call.py": f"{SERVED}/test_calls.py",
    "gateway/api/context.py": f"{SERVED}/test_hints.py",
    "gateway/api/dispatch.py": f"{SERVED}/test_refusals.py",
    "gateway/api/edge.py": f"{SERVED}/test_edge.py",
    "gateway/api/hints.py": f"{SERVED}/test_hints.py",
    "gateway/api/limits.py": f"{SERVED}/test_limits.py",
    "gateway/api/models.py": f"{SERVED}/test_routes.py",
    "gateway/api/openapi.py": f"{SERVED}/test_routes.py",
    "gateway/api/placing.py": f"{SERVED}/test_shared_beginnings.py",
    "gateway/api/prefills.py": f"{SERVED}/test_prefills.py",
    "gateway/api/relay.py": f"{SERVED}/test_calls.py",
    "gateway/api/request.py": f"{SERVED}/test_refusals.py",
    "gateway/api/services.py": f"{SERVED}/test_calls.py",
    "gateway/api/status.py": f"{SERVED}/test_routes.py",
    "gateway/api/stories.py": f"{SERVED}/test_stories.py",
    "gateway/api/watch.py": f"{SERVED}/test_lineage.py",
    "gateway/api/websocket.py": f"{SERVED}/test_websocket.py",
    "gateway/api/websocket_server.py": f"{SERVED}/test_websocket.py",
    "gateway/app.py": f"{SERVED}/test_calls.py",
    "gateway/engine/advice.py": f"{SERVED}/test_hints.py",
    "gateway/serve.py": f"{SERVED}/test_serve.py",
    # Data and protocols: their users' tests are theirs.
    "gateway/model/hint.py": "tests/unit/gateway/policies/test_hints.py",
    "gateway/model/limits.py": "tests/contract/test_limits.py",
    "gateway/model/program.py": "tests/contract/test_process_table.py",
    "gateway/model/replica.py": "tests/unit/gateway/policies/route/test_filters.py",
    "gateway/model/routing.py": "tests/unit/gateway/policies/route/test_router.py",
    "gateway/policies/route/protocols.py": "tests/unit/gateway/policies/route/test_router.py",
    "gateway/programs/table.py": "tests/contract/test_process_table.py",
    "gateway/programs/lineage/store.py": "tests/contract/test_lineage_store.py",
    # They need a real Redis.
    "gateway/programs/lineage/redis.py": "tests/contract/test_lineage_store.py",
    "gateway/programs/limits.py": "tests/contract/test_limits.py",
    "gateway/programs/redis_limits.py": "tests/contract/test_limits.py",
    "gateway/programs/redis.py": "tests/contract/test_redis_table.py",
    "gateway/programs/handles.py": "tests/contract/test_handles.py",
    "gateway/programs/redis_handles.py": "tests/contract/test_handles.py",
    "gateway/programs/redis_store.py": "tests/contract/test_redis_table.py",
    "gateway/programs/redis_chains.py": "tests/contract/test_redis_chains.py",
    "gateway/programs/redis_check.py": "tests/contract/test_redis_table.py",
    "gateway/programs/resilient.py": "tests/contract/test_resilient_table.py",
    # They need a real engine.
    "engine_patches/caches.py": "tests/engine/test_tags.py",
    "engine_patches/compat_serve.py": "tests/unit/engine_patches/test_server.py",
    "engine_patches/endpoints.py": "tests/engine/test_scheduler.py",
    "engine_patches/hub.py": "tests/unit/engine_patches/test_channel.py",
    "engine_patches/scheduler.py": "tests/engine/test_scheduler.py",
    # Readers that are tried through the one door to them.
    "loadgen/traces/tau.py": "tests/unit/loadgen/traces/test_files.py",
    # What was published, and what is held to it.
    "loadgen/traces/published.py": "tests/unit/loadgen/traces/test_files.py",
    "loadgen/workloads/agentix.py": "tests/unit/loadgen/workloads/test_registry.py",
    "loadgen/workloads/sutradhara.py": "tests/unit/loadgen/workloads/test_registry.py",
    "loadgen/report/figures.py": "tests/unit/loadgen/report/test_replay.py",
    # Clients, servers and commands: they do nothing without the other side.
    "loadgen/tenants/command.py": "tests/system/real/test_tenants.py",
    "loadgen/tenants/scenes.py": "tests/system/real/test_tenants.py",
    "loadgen/tiny_model.py": "tests/unit/loadgen/scheduler/test_scene.py",
    "loadgen/local_stack.py": "tests/system/real/test_replay.py",
    **{
        f"loadgen/simulated/{name}.py": "tests/system/test_simulated_replica.py"
        for name in ("admin", "answering", "command", "http", "server", "service")
    },
    **{
        f"loadgen/simulated/dialects/{name}.py": "tests/system/test_simulated_dialects.py"
        for name in ("base", "chat", "completions", "messages", "responses")
    },
    "loadgen/simulated/engine.py": "tests/unit/loadgen/simulated/test_batcher.py",
    "loadgen/peers/replicas.py": "tests/system/test_peers.py",
    # Agents to run against a real engine.
    "gateway/sdk/examples/langgraph_agent.py": "tests/system/real/test_examples.py",
    "gateway/sdk/examples/openai_agents.py": "tests/system/real/test_examples.py",
    "gateway/sdk/examples/overlap.py": "tests/system/real/test_examples.py",
    "gateway/sdk/examples/plain_openai.py": "tests/system/real/test_examples.py",
    # Options of commands, tried with the commands.
    "gateway/cli_gpu.py": "tests/unit/loadgen/gpu/test_command.py",
    "gateway/cli_peers.py": "tests/unit/loadgen/peers/test_command.py",
    "gateway/cli_parts.py": "tests/unit/loadgen/tags/test_command.py",
    "gateway/cli_experiments.py": "tests/unit/loadgen/experiments/test_command.py",
    # What is said of experiments is said of all of them.
    "loadgen/experiments/experiment.py": "tests/unit/loadgen/experiments/test_registry.py",
    "loadgen/experiments/preload.py": "tests/unit/loadgen/experiments/test_runner.py",
    "gateway/cli_simulator.py": "tests/unit/loadgen/test_sim_command.py",
    # Processes of a bench, which do nothing without the gateway that they attack.
    **{
        f"loadgen/attack/{name}.py": "tests/system/test_attack_bench.py"
        for name in ("attacker", "attacks", "honest")
    },
    # They start and end processes.
    "deploy/local/guard.py": "tests/system/test_up.py",
    "deploy/local/up.py": "tests/system/test_up.py",
}


def mirror(file: Path) -> Path:
    """Where a module's unit test belongs."""
    return Path("tests/unit") / file.parent / f"test_{file.name}"


@pytest.mark.parametrize("file", [*FILES, *sources("tests")], ids=str)
def test_a_file_is_not_too_long(file: Path) -> None:
    lines = len((ROOT / file).read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{lines} lines: one concept a file"


@pytest.mark.parametrize("file", FILES, ids=str)
def test_public_names_are_documented(file: Path) -> None:
    without = [
        name
        for name, node in public_definitions(file)
        if not ast.get_docstring(node) and not CALLBACK.search(name)
    ]
    assert not without


@pytest.mark.parametrize("file", FILES, ids=str)
def test_nothing_is_left_for_later(file: Path) -> None:
    found = UNFINISHED.search((ROOT / file).read_text(encoding="utf-8"))
    assert found is None, found


@pytest.mark.parametrize("file", [f for f in FILES if not f.name.startswith("__")], ids=str)
def test_a_module_has_its_test(file: Path) -> None:
    if file.as_posix() in ELSEWHERE:
        assert not (ROOT / mirror(file)).exists(), "it has one now: take it off the list"
        assert (ROOT / ELSEWHERE[file.as_posix()]).is_file()
    else:
        assert (ROOT / mirror(file)).is_file()


def test_the_list_names_modules_that_exist() -> None:
    assert set(ELSEWHERE) <= {file.as_posix() for file in FILES}


def test_unit_tests_have_a_module() -> None:
    """A test that has outlived its module, or sits in the wrong folder."""
    packaged = {mirror(file) for file in FILES}
    strays = [
        file
        for package in PACKAGES
        for file in sources(f"tests/unit/{package}")
        if file.name.startswith("test_") and file not in packaged and not _of_data(file)
    ]
    assert not strays


def _of_data(test: Path) -> bool:
    """Whether a test is about files that are not Python: compose files, alert rules."""
    return test.is_relative_to("tests/unit/deploy") and not test.is_relative_to(
        "tests/unit/deploy/local"
    )
