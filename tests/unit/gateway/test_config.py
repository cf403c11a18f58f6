"""Settings: where they come from, and what is refused, by name."""

from __future__ import annotations

import os

import pytest

from gateway.config import Balancer, Settings, SettingsError, load


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of whoever runs the tests do not count."""
    for name in list(os.environ):
        if name.startswith("WEFT_"):
            monkeypatch.delenv(name)


def test_defaults_are_valid() -> None:
    settings = load()
    assert settings.replicas == ()
    assert settings.balancer is Balancer.LOCALITY
    assert settings.locality_threshold_tokens == 2048


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "0"),
        ("port", "many"),
        ("replicas", "a:8001"),
        ("replicas", "http://a:1,http://a:1/v1"),
        ("redis_url", "http://redis"),
        ("redis_prefix", ""),
        ("balancer", "random"),
        ("max_body_bytes", "12"),
        ("first_byte_timeout_s", "0"),
        ("drain_s", "-1"),
        ("retry_after_s", "0"),
    ],
)
def test_a_wrong_setting_is_named_with_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WEFT_{name.upper()}", value)
    with pytest.raises(SettingsError, match=rf"^{name} \(WEFT_{name.upper()}\): "):
        load()


def test_every_wrong_setting_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load(port=0, drain_s=-1)
    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["port", "drain_s"]


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="prot"):
        load(prot=1)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().port = 1  # type: ignore[misc]


def test_seconds_say_so() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        if name.endswith("_s") and field.annotation is float:
            assert "second" in field.description or "so long" in field.description, name
