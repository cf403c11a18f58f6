"""The keys file: its contents, and errors with their place."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft_gateway.config import SettingsError
from weft_gateway.config import load as load_settings
from weft_gateway.model.limits import TenantRules
from weft_gateway.model.slo import Granted, SloClass, Slos
from weft_gateway.programs.identity import tenant_of
from weft_gateway.tenants import Tenants, TenantsError

GOOD = """
[default]
requests_per_minute = 60
calls_in_flight = 9

[keys.search]
key = "sk-search"
weight = 3
tokens_per_minute = 2_000
class = "report"
may = ["chat"]

[keys.batch]
digest = "0123456789abcdef"
requests_per_minute = 0
"""
CLASSES = {name: SloClass(name) for name in ("chat", "report")}
SLOS = Slos(CLASSES, {}, Granted("chat", frozenset(CLASSES)))


def written(folder: Path, text: str) -> str:
    file = folder / "keys.toml"
    file.write_text(text)
    return str(file)


def test_entries_override_single_members_of_the_default(tmp_path: Path) -> None:
    tenants = Tenants(written(tmp_path, GOOD), ["listed"], SLOS)
    search, batch, listed = tenant_of("sk-search"), "0123456789abcdef", tenant_of("listed")
    assert tenants.of(search) == TenantRules(3.0, 60, 2000, 9)
    assert tenants.of(batch) == TenantRules(1.0, 0, 0, 9)
    assert tenants.of(listed) == TenantRules(1.0, 60, 0, 9)
    assert tenants.limited
    assert [tenants.name(one) for one in (search, batch, listed)] == ["search", "batch", listed]
    assert [tenants.accepts(one) for one in (search, batch, listed, "x")] == [True] * 3 + [False]
    assert tenants.grants == {
        search: Granted("report", frozenset({"chat", "report"})),
        batch: Granted("chat", frozenset({"chat"})),
        listed: Granted("chat", frozenset({"chat"})),
    }


def test_without_classes_of_keys_every_key_may_use_every_class(tmp_path: Path) -> None:
    tenants = Tenants(written(tmp_path, '[keys.a]\nkey = "a"'), slos=SLOS)
    assert tenants.grants[tenant_of("a")].may == {"chat", "report"}


def test_no_key_is_required_without_keys() -> None:
    tenants = Tenants()
    assert (tenants.required, tenants.limited, tenants.of("x")) == (False, False, TenantRules())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[default", "not valid TOML"),
        ("[defaults]", "did you mean default?"),
        ("[default]\nweigth = 2", "default.weigth: unknown member; did you mean weight?"),
        ("[default]\nweight = 0", "default.weight: Input should be greater than or equal to 0.001"),
        ("[default]\nweight = 1001", "default.weight: Input should be less than or equal to 1000"),
        ("[default]\nweight = nan", "default.weight"),
        ("[default]\nrequests_per_minute = -1", "default.requests_per_minute: Input should be"),
        ("[default]\ncalls_in_flight = 1.5", "default.calls_in_flight"),
        ("[keys.a]\nweight = 2", "keys.a: set either key or digest"),
        ('[keys.a]\nkey = "k"\ndigest = "0123456789abcdef"', "set either key or digest"),
        ('[keys.a]\nkey = ""', "keys.a.key: String should have at least 1"),
        ('[keys.a]\nkey = "k "', "keys.a.key: a key must be printable ASCII"),
        ('[keys.a]\nkey = "sk-\u00e9"', "keys.a.key: a key must be printable ASCII"),
        ('[keys.a]\ndigest = "xyz"', "keys.a.digest: String should match pattern"),
        ('[keys.a]\nkey = "k"\n[keys.b]\nkey = "k"', "keys.b: the entry a has the same key"),
        ('[keys.a]\nkey = "k"\nclass = "x"', "keys.a: unknown class 'x'; known: chat, report"),
        ('[keys.a]\nkey = "k"\nmay = ["x"]', "keys.a: unknown class 'x'; known: chat, report"),
        ('[keys.public]\nkey = "k"', "keys.public: reports use this name"),
        ('[keys."a b"]\nkey = "k"', "keys.a b: String should match pattern"),
        ('[tenants.a]\nkey = "k"', "tenants: the tables are called [keys.NAME] now"),
        ("keys = 3", "keys: Input should be a valid dictionary"),
    ],
)
def test_each_error_names_its_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TenantsError) as error:
        Tenants(written(tmp_path, text), slos=SLOS)
    assert said in str(error.value)
    assert "keys.toml" in str(error.value)


def test_invalid_file_is_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"keys_file .*No such file"):
        load_settings(keys_file=str(tmp_path / "missing.toml"))


def test_no_error_shows_a_key(tmp_path: Path) -> None:
    text = '[keys.a]\nkey = "sk-secret"\n[keys.b]\nkey = "sk-secret"'
    with pytest.raises(SettingsError) as error:
        load_settings(keys_file=written(tmp_path, text))
    assert "sk-secret" not in str(error.value)
