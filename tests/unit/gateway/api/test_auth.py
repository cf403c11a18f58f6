"""Authentication of callers and administrators."""

import pytest
from weft_gateway.api.auth import Authenticator
from weft_gateway.errors import ApiError
from weft_gateway.tenants import Tenants

OPEN = Authenticator(Tenants(), "")
KEYED = Authenticator(Tenants(api_keys=("a", "b", "sk-secret")), "")


def bearer(key: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + key.encode()}


def test_tenant_does_not_contain_the_key() -> None:
    assert "sk-secret" not in repr(KEYED.caller(bearer("sk-secret")))


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
