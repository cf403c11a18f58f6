"""Authentication of callers and administrators."""

import pytest
from weft_gateway.api.auth import Authenticator
from weft_gateway.errors import ApiError
from weft_gateway.tenants import Tenants

OPEN = Authenticator(Tenants(), "")
KEYED = Authenticator(Tenants(api_keys=("a", "b", "sk-secret")), "")


def bearer(key: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + key.encode()}


def test_each_key_is_a_separate_tenant() -> None:
    a, b = KEYED.caller(bearer("a")), KEYED.caller(bearer("b"))
    assert a.tenant != b.tenant
    assert a.salt != b.salt
    assert KEYED.caller_of(a.tenant) == a


def test_without_keys_there_is_one_tenant() -> None:
    anonymous = OPEN.caller({})
    assert anonymous == OPEN.caller(bearer("a")) == OPEN.caller_of("public")
    assert anonymous.salt == ""


def test_both_headers_for_a_key_give_the_same_tenant() -> None:
    assert KEYED.caller(bearer("a")) == KEYED.caller({b"x-api-key": b"a"})
    assert KEYED.caller({b"authorization": b"bearer  a "}) == KEYED.caller(bearer("a"))


def test_tenant_does_not_contain_the_key() -> None:
    assert "sk-secret" not in repr(KEYED.caller(bearer("sk-secret")))


def test_unlisted_keys_are_refused() -> None:
    auth = Authenticator(Tenants(api_keys=("good",)), "")
    auth.caller(bearer("good"))
    for headers in ({}, bearer("bad"), {b"authorization": b"Basic good"}):
        with pytest.raises(ApiError) as caught:
            auth.caller(headers)
        assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")


def test_is_admin_checks_key_and_peer() -> None:
    assert Authenticator(Tenants(), "adm").is_admin(bearer("adm"), "192.0.2.1")
    assert not Authenticator(Tenants(), "adm").is_admin(bearer("sk"), "127.0.0.1")
    assert OPEN.is_admin({}, "127.0.0.1")
    assert not OPEN.is_admin({}, "192.0.2.1")


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_may_administer_without_an_admin_key(peer: str) -> None:
    OPEN.require_admin({}, peer)


@pytest.mark.parametrize("peer", ["10.0.0.1", "::ffff:10.0.0.1", "", "localhost"])
def test_other_peers_may_not_administer_without_an_admin_key(peer: str) -> None:
    with pytest.raises(ApiError) as caught:
        OPEN.require_admin({}, peer)
    assert caught.value.status == 403


def test_admin_key_is_required_from_every_peer() -> None:
    auth = Authenticator(Tenants(), "root")
    auth.require_admin(bearer("root"), "10.0.0.1")
    with pytest.raises(ApiError) as caught:
        auth.require_admin(bearer("roots"), "127.0.0.1")
    assert caught.value.status == 401
