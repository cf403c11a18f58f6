"""The tenants file: its contents, and errors with their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft_gateway.app import make_tenants
from weft_gateway.config import SettingsError
from weft_gateway.config import load as load_settings
from weft_gateway.model.limits import TenantRules
from weft_gateway.programs.identity import tenant_of
from weft_gateway.tenants import TenantsError, load

GOOD = """
[default]
requests_per_minute = 60

[tenants.search]
key = "sk-search"
weight = 3
tokens_per_minute = 2_000

[tenants.batch]
key_digest = "0123456789abcdef"
requests_per_minute = 0
"""


def written(folder: Path, text: str) -> str:
    file = folder / "tenants.toml"
    file.write_text(text)
    return str(file)


def test_entries_override_single_members_of_the_default(tmp_path: Path) -> None:
    tenants = load(written(tmp_path, GOOD), TenantRules(calls_in_flight=9))
    assert tenants.of(tenant_of("sk-search")) == TenantRules(3.0, 60, 2000, 9)
    assert tenants.of("0123456789abcdef") == TenantRules(1.0, 0, 0, 9)
    assert tenants.of(tenant_of("another")) == TenantRules(1.0, 60, 0, 9)
    assert tenants.limited


def test_every_tenant_has_the_default_without_a_file() -> None:
    assert load("", TenantRules()).of("x") == TenantRules()
    assert not load("", TenantRules()).limited


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[default", "is not valid TOML"),
        ("[defaults]", "did you mean default?"),
        (
            "[default]\nweigth = 2",
            "default.weigth: unknown member; did you mean weight?",
        ),
        ("[default]\nweight = 0", "default.weight: Input should be greater than or equal to 0.001"),
        ("[default]\nweight = 1e-200", "default.weight: Input should be greater than or equal"),
        ("[default]\nweight = 1001", "default.weight: Input should be less than or equal to 1000"),
        ("[default]\nweight = nan", "default.weight"),
        ("[default]\nweight = true", "default.weight"),
        (
            "[default]\nrequests_per_minute = -1",
            "default.requests_per_minute: Input should be greater",
        ),
        ("[default]\ncalls_in_flight = 1.5", "default.calls_in_flight"),
        ("[tenants.a]\nweight = 2", "tenants.a: set either key or key_digest"),
        ('[tenants.a]\nkey = "k"\nkey_digest = "0123456789abcdef"', "set either key or"),
        ('[tenants.a]\nkey = ""', "tenants.a.key: String should have at least 1"),
        ('[tenants.a]\nkey_digest = "xyz"', "tenants.a.key_digest: String should match pattern"),
        ('[tenants.a]\nkey = "k"\n[tenants.b]\nkey = "k"', "tenants.b: another entry has the same"),
        ("tenants = 3", "tenants: Input should be a valid dictionary"),
        ("[tenants]\na = 3", "tenants.a: Input should be a valid dictionary"),
    ],
)
def test_each_error_names_its_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TenantsError) as error:
        load(written(tmp_path, text), TenantRules())
    assert said in str(error.value)
    assert "tenants.toml" in str(error.value)


def test_invalid_file_is_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"tenants_file .*No such file"):
        load_settings(tenants_file=str(tmp_path / "missing.toml"))


def test_no_error_shows_a_key(tmp_path: Path) -> None:
    text = '[tenants.a]\nkey = "sk-secret"\n[tenants.b]\nkey = "sk-secret"'
    with pytest.raises(SettingsError) as error:
        load_settings(tenants_file=written(tmp_path, text))
    assert "sk-secret" not in str(error.value)


def test_limits_of_the_settings_are_the_default(tmp_path: Path) -> None:
    settings = load_settings(requests_per_minute=5, tokens_per_minute=6, calls_in_flight=7)
    assert make_tenants(settings).of("x") == TenantRules(1.0, 5, 6, 7)
