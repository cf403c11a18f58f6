"""The compose files follow the published schema, and their commands, ports, paths, variables and
build targets exist. The tests need no Docker engine."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import redis
import yaml
from support.compose import interpolate, load, variables
from support.dockerfile import exec_form, parse
from support.redis_server import RedisServer
from weft_deploy.local import plan
from weft_engine.emulated.launch import check
from weft_engine.launch import stock_arguments
from weft_gateway import cli
from weft_gateway.config import Settings, SettingsError
from weft_gateway.config import load as load_settings

ROOT = Path(__file__).parents[3]
BASE = ROOT / "docker-compose.yml"
CPU = ROOT / "deploy/compose.cpu.yml"
EMULATED = ROOT / "deploy/compose.emulated.yml"
EXAMPLE = ROOT / "deploy/env.example"
STACKS = {"gpu": (BASE,), "cpu": (BASE, CPU), "emulated": (BASE, CPU, EMULATED)}
FILLED = {
    "WEFT_ENGINE_SECRET": "s",
    "WEFT_ADMIN_KEY": "a",
    "GRAFANA_PASSWORD": "g",
    "REDIS_PASSWORD": "53cr37",
}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the merged model with all variables replaced."""
    loaded: dict[str, Any] = interpolate(load(*STACKS[request.param]), FILLED)
    return loaded


def services(stack: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = stack["services"]
    return found


def replicas(stack: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: s for name, s in services(stack).items() if name.startswith("replica-")}


def mounts(service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return (source, target) of each mount."""
    for text in service.get("volumes", []):
        source, target, *_ = text.split(":")
        yield source, target


def listens(stack: dict[str, Any], name: str) -> set[int]:
    """Return the ports on which other services can reach a service."""
    service = services(stack)[name]
    ports = {int(port) for port in service.get("expose", [])}
    ports |= {int(port.split(":")[-1]) for port in service.get("ports", [])}
    return ports


@pytest.mark.parametrize("name", STACKS)
def test_the_files_follow_the_compose_schema(name: str) -> None:
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(vendored.read_text())
    jsonschema.validate(load(*STACKS[name]), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"gateway": {"imagee": "x"}}}, schema)


def test_the_example_has_exactly_the_variables_of_the_files() -> None:
    named = set(re.findall(r"^([A-Z_]+)=", EXAMPLE.read_text(), re.MULTILINE))
    assert named == variables(BASE) | variables(CPU)


@pytest.mark.parametrize("missing", FILLED)
def test_a_missing_secret_is_refused(missing: str) -> None:
    environment = {name: value for name, value in FILLED.items() if name != missing}
    with pytest.raises(KeyError, match=missing):
        interpolate(load(BASE), environment)


def test_build_targets_and_arguments_exist(stack: dict[str, Any]) -> None:
    for service in services(stack).values():
        if build := service.get("build"):
            file = parse(DOCKERFILE, build.get("args"))
            assert set(build.get("args", {})) <= set(file.arguments)
            base = file.stages[build["target"]].base
            assert base in file.stages or ":" in base
            assert (ROOT / build["context"] / "Dockerfile").is_file()


def test_image_versions_are_pinned(stack: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for service in services(stack).values():
        name, _, tag = service["image"].partition(":")
        assert tag == version if "build" in service else re.search(r"\d", tag), name


def test_the_gateway_accepts_its_environment(
    stack: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = services(stack)["gateway"]["environment"]
    for name, value in environment.items():
        assert name.removeprefix("WEFT_").lower() in Settings.model_fields, name
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert len(settings.replicas) == len(replicas(stack)) == 2
    assert list(settings.replica_urls) == [f"{name}:8001" for name in replicas(stack)]
    for url in (*settings.replica_urls.values(), settings.redis_url):
        parts = urlsplit(url)
        assert parts.hostname in services(stack)
        assert parts.port in listens(stack, parts.hostname or "")


def test_variables_of_the_replicas_are_read_by_the_plugin(stack: dict[str, Any]) -> None:
    sources = "".join(file.read_text() for file in (ROOT / "engine_patches").rglob("*.py"))
    for replica in replicas(stack).values():
        for name in replica["environment"]:
            if name.startswith("WEFT_"):
                assert f'"{name}"' in sources
        gateway = services(stack)["gateway"]["environment"]
        secret = "WEFT_ENGINE_SECRET"
        assert replica["environment"][secret] == gateway[secret]


def test_replicas_start_with_existing_options(stack: dict[str, Any]) -> None:
    target = parse(DOCKERFILE).stages["replica"]
    program, subcommand, *fixed = exec_form(target.all("ENTRYPOINT")[0])
    command = cli.load(subcommand)
    for name, replica in replicas(stack).items():
        context = command.make_context(f"{program} {subcommand}", [*fixed, *replica["command"]])
        assert context.params["model"]
        assert context.params["host"] == "0.0.0.0"
        assert context.params["port"] in listens(stack, name)
        assert context.params["policy"] in plan.order_names()
        flags = stock_arguments(context.params["model"], "h", 1, True, context.args)
        # Without it, vLLM answers 400 to the calls of agents.
        assert "--enable-auto-tool-choice" in flags


def flags(*words: str) -> list[str]:
    """Return the order and vLLM's flags for the arguments of `weft replica`."""
    command = cli.load("replica")
    context = command.make_context("weft replica", [*words])
    model = context.params["model"]
    line = stock_arguments(model, "h", 1, False, context.args)
    return [context.params["policy"], *line, *context.args]


def test_cpu_replicas_serve_the_demo_model_as_weft_up_does() -> None:
    stack = interpolate(load(*STACKS["cpu"]), FILLED)
    model = "/opt/weft-demo"
    assert f"--out {model}" in DOCKERFILE
    up = plan.replica(plan.UpOptions(), 0, 8001, model, "s", gpus=0)
    arguments = flags(*up.command[up.command.index("replica") + 1 :])
    # The engine takes the name from the folder.
    named = {"--served-model-name", model.rpartition("/")[2]}
    for replica in replicas(stack).values():
        assert {*flags(*replica["command"])} == {*arguments} - named
        assert replica["environment"].items() >= {"HF_HUB_OFFLINE": "1"}.items()
        assert replica["build"]["args"] == {"ENGINE": "cpu"}
        assert "deploy" not in replica, "no GPU is asked for"


def test_emulated_replicas_take_the_times_of_a_preset() -> None:
    command = cli.load("replica")
    for replica in replicas(interpolate(load(*STACKS["emulated"]), FILLED)).values():
        options = command.make_context("weft replica", [*replica["command"]]).params
        assert options["emulated"]
        assert check(options["preset"], options["dilate"], options["scheduler"]).name == "8b-a100"


def test_each_gpu_replica_has_its_own_device() -> None:
    stack = interpolate(load(BASE), FILLED)
    taken = []
    for replica in replicas(stack).values():
        (device,) = replica["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
        taken += device["device_ids"]
    assert len(taken) == len(set(taken)) == 2


def test_ports_are_published_on_this_machine_only_and_once(stack: dict[str, Any]) -> None:
    published = [port for s in services(stack).values() for port in s.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)
    assert listens(stack, "gateway") == {Settings.model_fields["port"].default}


def test_mounted_files_exist(stack: dict[str, Any]) -> None:
    for service in services(stack).values():
        for source, _ in mounts(service):
            assert (
                (ROOT / source).is_dir() if source.startswith(".") else source in stack["volumes"]
            )


def test_batches_of_the_gateway_are_on_a_volume(stack: dict[str, Any]) -> None:
    image = parse(DOCKERFILE).stages["gateway"]
    environment = dict(re.findall(r"(\w+)=(\S+)", " ".join(image.all("ENV"))))
    gateway = services(stack)["gateway"]
    assert "WEFT_DATA_DIR" not in gateway["environment"]
    folder = environment["WEFT_DATA_DIR"]
    inside = {target: source for source, target in mounts(gateway)}
    assert inside[folder] in stack["volumes"]
    assert gateway["read_only"]
    # A new volume takes the owner of the folder in the image.
    assert image.all("VOLUME") == [folder]
    assert any(re.search(rf"install .*--owner weft .*{folder}", run) for run in image.all("RUN"))
    assert image.all("USER") == ["weft"]


def test_every_service_has_a_health_check_and_restarts(stack: dict[str, Any]) -> None:
    stages = parse(DOCKERFILE).stages
    for name, service in services(stack).items():
        assert service["restart"] == "unless-stopped", name
        if "healthcheck" not in service:
            assert stages[service["build"]["target"]].all("HEALTHCHECK"), name


def meeting(stack: dict[str, Any], network: str) -> set[str]:
    """Return the services on a network."""
    return {name for name, service in services(stack).items() if network in service["networks"]}


def test_only_gateways_reach_redis(stack: dict[str, Any]) -> None:
    (network,) = services(stack)["redis"]["networks"]
    assert meeting(stack, network) == {"gateway", "redis"}
    assert stack["networks"][network] == {"internal": True}
    assert "ports" not in services(stack)["redis"]


def test_clients_cannot_reach_engines(stack: dict[str, Any]) -> None:
    engines = set(replicas(stack))
    reached = {network for name in engines for network in services(stack)[name]["networks"]}
    assert reached == {"engines"}
    assert meeting(stack, "engines") == engines | {"gateway", "prometheus"}
    assert meeting(stack, "public") == {"gateway"}
    for name, service in services(stack).items():
        assert set(service["networks"]) <= set(stack["networks"]), name


def test_services_that_connect_share_a_network(stack: dict[str, Any]) -> None:
    pairs = [("gateway", name) for name in ("redis", *replicas(stack))]
    pairs += [("prometheus", name) for name in ("gateway", "grafana", *replicas(stack))]
    for one, other in pairs:
        networks = [set(services(stack)[name]["networks"]) for name in (one, other)]
        assert networks[0] & networks[1], (one, other)


@pytest.mark.slow
def test_redis_requires_the_password_of_the_gateway(stack: dict[str, Any], tmp_path: Path) -> None:
    redis_service = services(stack)["redis"]
    program, file = redis_service["command"]
    (mounted,) = redis_service["configs"]
    assert (program, mounted["target"]) == ("redis-server", file)
    given = stack["configs"][mounted["source"]]["content"]
    url = services(stack)["gateway"]["environment"]["WEFT_REDIS_URL"]
    server = RedisServer(tmp_path, config=given)
    try:
        here = url.replace("redis:6379", f"127.0.0.1:{server.port}")
        with redis.Redis.from_url(here) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
        for wrong in (here.replace("53cr37", "other"), f"redis://127.0.0.1:{server.port}/0"):
            with redis.Redis.from_url(wrong) as client, pytest.raises(redis.AuthenticationError):
                client.ping()
        # The password is not in the arguments or in the image's history.
        assert "53cr37" not in " ".join(
            [*redis_service["command"], *redis_service["healthcheck"]["test"]]
        )
    finally:
        server.kill()


def test_the_password_of_redis_is_not_shown(
    stack: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in services(stack)["gateway"]["environment"].items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert "53cr37" in settings.redis_url
    assert "53cr37" not in repr(settings)
    monkeypatch.setenv("WEFT_REDIS_URL", "redis://:53cr37@redis:port/0")
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert "53cr37" not in str(raised.value)


def test_dependencies_are_services_without_cycles(stack: dict[str, Any]) -> None:
    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above
        for needed in services(stack)[name].get("depends_on", {}):
            visit(needed, (*above, name))

    for name in services(stack):
        visit(name, ())


def test_the_stop_grace_period_is_longer_than_the_drain(stack: dict[str, Any]) -> None:
    grace = services(stack)["gateway"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) > Settings.model_fields["drain_s"].default


def test_prometheus_and_grafana_find_their_files(stack: dict[str, Any]) -> None:
    prometheus, grafana = services(stack)["prometheus"], services(stack)["grafana"]
    (config,) = (word.partition("=")[2] for word in prometheus["command"] if "config.file" in word)
    inside = {target: source for source, target in mounts(prometheus)}
    folder, _, name = config.rpartition("/")
    assert (ROOT / inside[folder] / name).is_file()

    inside = {target: source for source, target in mounts(grafana)}
    provisioning = ROOT / inside["/etc/grafana/provisioning"]
    providers = yaml.safe_load((provisioning / "dashboards/weft.yml").read_text())["providers"]
    for provider in providers:
        assert list((ROOT / inside[provider["options"]["path"]]).glob("*.json"))


def test_prometheus_and_grafana_find_their_services(stack: dict[str, Any]) -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = {
        target
        for job in config["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert {target.partition(":")[0] for target in targets} == {"gateway", *replicas(stack)}
    source = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text()
    )
    (url,) = (item["url"] for item in source["datasources"])
    for address in (*targets, urlsplit(url).netloc):
        host, _, port = address.partition(":")
        assert int(port) in listens(stack, host)
