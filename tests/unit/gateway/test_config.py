"""Settings: sources and errors."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from weft_gateway.config import Settings, SettingsError, exposed, load, unread
from weft_gateway.constants import CONSTANTS
from weft_gateway.removed_settings import REMOVED

ROOT = Path(__file__).parents[3]
# Settings that a test's variables change.
GOOD = {"api_keys": "k", "redis_url": "redis://h", "replicas": "http://h", "port": 1}


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of the environment."""
    for name in list(os.environ):
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)


def test_defaults_are_valid() -> None:
    settings = load()
    assert settings.replicas == ()
    assert settings.balancer == "locality"


def test_arguments_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_PORT", "9000")
    monkeypatch.setenv("WEFT_HOST", "0.0.0.0")
    settings = load(port=9001, host=None)
    assert (settings.port, settings.host) == (9001, "0.0.0.0")


def test_lists_are_split_and_urls_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_REPLICAS", "http://a:1/v1/, http://b:2 ,")
    monkeypatch.setenv("WEFT_API_KEYS", "one,two")
    settings = load()
    assert settings.replicas == ("http://a:1", "http://b:2")
    assert settings.api_keys == ("one", "two")


def test_replicas_keep_their_names_when_the_list_changes() -> None:
    before = load(replicas="http://a:1,http://b:2").replica_urls
    after = load(replicas="http://c:3, http://b:2/v1,x=http://d:4").replica_urls
    assert before == {"a:1": "http://a:1", "b:2": "http://b:2"}
    assert after == {"c:3": "http://c:3", "b:2": "http://b:2", "x": "http://d:4"}
    # A second load, as in another process, gives the same settings.
    again = load(replicas=",".join(load(replicas="x=http://d:4/v1,http://c:3").replicas))
    assert again.replicas == ("x=http://d:4", "http://c:3")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "0"),
        ("port", "many"),
        ("replicas", "a:8001"),
        ("replicas", "http://a:1,http://a:1/v1"),
        ("replicas", "http://h:notaport"),
        ("replicas", "http://h:99999"),
        ("replicas", "http://[::1"),
        ("replicas", "http://a..b:80"),
        ("replicas", "http://h?x=1"),
        ("replicas", "http://H:80,HTTP://h/v1/"),
        ("replicas", ","),
        ("replicas", "a=http://h:1,a=http://h:2"),
        ("replicas", "h:80=http://g,http://h"),
        ("replicas", "a=http://h:1,b=http://h:1"),
        ("replicas", "not good=http://h"),
        ("replicas", "http://h:443,https://h"),
        ("redis_url", "http://redis"),
        ("redis_url", "redis://h:abc"),
        ("redis_url", "redis://h/notadb"),
        ("host", ""),
        ("api_keys", ","),
        ("api_keys", " "),
        ("api_keys", "good,b\u00e9d"),
        ("admin_key", "a\nb"),
        ("replica_api_key", "secret\n"),
        ("engine_secret", "two\r\nlines"),
        ("balancer", "random"),
        ("max_body_bytes", "12"),
        ("drain_s", "-1"),
    ],
)
def test_error_names_the_setting_and_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WEFT_{name.upper()}", value)
    with pytest.raises(SettingsError, match=rf"^{name} \(WEFT_{name.upper()}\): "):
        load()


def test_errors_have_one_line_each_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_ADMIN_KEY", "hunter2\n")
    monkeypatch.setenv("WEFT_API_KEYS", "hunter2\x7f")
    monkeypatch.setenv("WEFT_REDIS_URL", "redis://:hunter2@h/x")
    monkeypatch.setenv("WEFT_REPLICAS", "http://hunter2@h")
    monkeypatch.setenv("WEFT_PORT", "0\n0")
    with pytest.raises(SettingsError) as caught:
        load()
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 5
    assert "hunter2" not in repr(load(admin_key="hunter2", **GOOD))


def test_keys_may_contain_header_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_ADMIN_KEY", "a b~!")
    assert load().admin_key == "a b~!"


def test_empty_lists_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_API_KEYS", "")
    monkeypatch.setenv("WEFT_REPLICAS", "")
    assert (load().api_keys, load().replicas) == ((), ())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("WEFT_REPLCAS", "WEFT_REPLICAS"),
        ("weft_redis", "WEFT_REDIS_URL"),
        ("WEFT_ENGINE_SETTING", "WEFT_ENGINE_SETTINGS"),
    ],
)
def test_unknown_variable_is_reported_with_the_nearest_name(name: str, nearest: str) -> None:
    (warning,) = unread({name: "x", "PATH": "/"})
    assert warning == f"{name} is not a known setting; did you mean {nearest}?"


def test_unknown_variable_without_a_similar_name_is_reported() -> None:
    assert unread({"WEFT_QQQQ": "x"}) == ["WEFT_QQQQ is not a known setting"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("WEFT_API_KEY", "; did you mean WEFT_API_KEYS?"),
        ("weft_apikeys", "; did you mean WEFT_API_KEYS?"),
        ("WEFT_ADMIN_TOKEN", ""),
        ("WEFT_ENGINE_SECRETS", "; did you mean WEFT_ENGINE_SECRET?"),
        ("WEFT_REPLICA_KEY", "; did you mean WEFT_REPLICA_API_KEY?"),
        ("WEFT_PASSWORD", ""),
    ],
)
def test_misspelt_secret_is_refused(
    name: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "very-secret")
    with pytest.raises(SettingsError) as raised:
        load()
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{name} is not a known setting")
    assert line.endswith(nearest)
    assert "very-secret" not in line


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gateway.example"])
def test_public_address_without_keys_is_a_warning(host: str) -> None:
    (line,) = exposed(load(host=host, port=80))
    assert f"{host}:80" in line
    assert "WEFT_API_KEYS" in line
    assert exposed(load(host=host, api_keys="k")) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_address_without_keys_is_no_warning(host: str) -> None:
    assert exposed(load(host=host)) == []


def test_all_variables_in_the_code_are_known() -> None:
    named = {
        name
        for package in ("gateway", "engine_patches", "deploy", "loadgen", "kernels")
        for file in (ROOT / package).rglob("*.py")
        for name in re.findall(r"\"(WEFT_[A-Z_]+)\"", file.read_text())
    }
    assert "WEFT_ENGINE_SETTINGS" in named
    settings = {f"WEFT_{name.upper()}" for name in Settings.model_fields}
    assert unread(dict.fromkeys(named | settings, "")) == []


def test_all_wrong_settings_are_named_together() -> None:
    with pytest.raises(SettingsError) as caught:
        load(port=0, drain_s=-1)
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["port", "drain_s"]


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="prot"):
        load(prot=1)


def test_every_removed_setting_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in REMOVED:
        monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsError) as caught:
        load()
    assert str(caught.value).splitlines() == [
        f"{name} was removed: {why}" for name, why in REMOVED.items()
    ]
    assert REMOVED.keys().isdisjoint(f"WEFT_{name.upper()}" for name in Settings.model_fields)


def test_lines_of_removed_settings_name_the_present_values() -> None:
    for name, value in asdict(CONSTANTS).items():
        line = REMOVED.get(f"WEFT_{name.upper()}", "")
        said = re.match(r"it is ([0-9.]+)\b", line)
        assert said is None or float(said[1].rstrip(".")) == value, line


def test_settings_are_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().port = 1  # type: ignore[misc]


def test_descriptions_of_durations_name_their_unit() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        if name.endswith("_s") and field.annotation is float:
            assert "second" in field.description, name
