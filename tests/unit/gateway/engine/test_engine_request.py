"""Request bodies as engines receive them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.wire import CallContext
from weft_gateway.engine.endpoints import BY_PATH, ENDPOINTS
from weft_gateway.engine.engine_request import (
    ReplicaKind,
    TooDeep,
    build_engine_request,
    program_digest,
)
from weft_gateway.engine.salts import tenant_salt
from weft_gateway.model import ProgramKey

CHAT = BY_PATH["/v1/chat/completions"]
EMBEDDINGS = BY_PATH["/v1/embeddings"]
CONTEXT = CallContext(call="call-1", program="p", service_s=2.5, waiting_s=0.5, arrival_s=9.0)
SALT = tenant_salt("tenant")


def built(raw: bytes, endpoint: Any, kind: ReplicaKind, salt: str) -> tuple[bytes, bytes]:
    pieces, header = build_engine_request(raw, json.loads(raw), endpoint, kind, CONTEXT, salt)
    return b"".join(pieces), header


def lowered(
    raw: bytes, kind: ReplicaKind = ReplicaKind.WEFT, salt: str = SALT, endpoint: Any = CHAT
) -> tuple[dict[str, Any], bytes]:
    body, header = built(raw, endpoint, kind, salt)
    return json.loads(body), header


def test_body_without_weft_members_keeps_its_bytes() -> None:
    raw = b'  {"model" : "m","n":1.0,\n "u":"\\u00e9", "big":123456789012345678901234567890}'
    body, header = built(raw, CHAT, ReplicaKind.WEFT, SALT)
    assert body.endswith(raw[raw.index(b"{") + 1 :])
    assert header == b""
    sent = json.loads(body)
    assert sent.pop("vllm_xargs") == CONTEXT.to_xargs()
    assert sent.pop("cache_salt") == SALT
    assert sent == json.loads(raw)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), values))
def test_client_members_are_kept(client: dict[str, Any]) -> None:
    raw = json.dumps(client).encode()
    sent, _ = lowered(raw)
    gone = {"weft", "nvext", "session_id", "session_params", "vllm_xargs", "cache_salt"}
    gone |= {"request_id", "priority", "kv_transfer_params"}
    kept = {key: value for key, value in client.items() if key not in gone}
    assert {key: value for key, value in sent.items() if key not in gone} == kept


@pytest.mark.parametrize("raw", [b"{}", b" { } "])
def test_empty_body_becomes_json(raw: bytes) -> None:
    sent, _ = lowered(raw)
    assert sent == {"vllm_xargs": CONTEXT.to_xargs(), "cache_salt": SALT}


def test_hints_are_removed() -> None:
    raw = b'{"model":"m","weft":{"a":1},"nvext":{},"session_id":"s","session_params":{}}'
    for kind in ReplicaKind:
        sent, _ = lowered(raw, kind)
        assert not {"weft", "nvext", "session_id", "session_params"} & sent.keys()


def test_client_xargs_are_merged_but_do_not_override_wefts() -> None:
    raw = json.dumps(
        {"vllm_xargs": {"mine": 1, "weft_service": 0, "agentic_context": {"a": {}}}}
    ).encode()
    sent, _ = lowered(raw)
    assert sent["vllm_xargs"] == {"mine": 1, **CONTEXT.to_xargs()}


def test_malformed_xargs_pass_to_the_engine() -> None:
    sent, _ = lowered(b'{"vllm_xargs": [1]}')
    assert sent["vllm_xargs"] == [1]


def test_vllm_without_plugin_gets_only_the_salt_and_other_servers_nothing() -> None:
    raw = b'{"model":"m"}'
    assert lowered(raw, ReplicaKind.VLLM)[0] == {"model": "m", "cache_salt": SALT}
    body, header = built(raw, CHAT, ReplicaKind.STOCK, SALT)
    assert (body, header) == (raw, b"")
    assert lowered(b'{"vllm_xargs":{"a":1}}', ReplicaKind.STOCK)[0] == {}


def test_anonymous_clients_get_no_salt() -> None:
    assert "cache_salt" not in lowered(b'{"model":"m"}', salt="")[0]


def test_client_salt_is_combined_with_the_tenants_salt() -> None:
    raw = b'{"cache_salt":"mine"}'
    sent = lowered(raw)[0]["cache_salt"]
    other = lowered(raw, salt=tenant_salt("other"))[0]["cache_salt"]
    assert len({sent, other, SALT, "mine"}) == 4
    # The salt of an anonymous client is hashed too, because it may equal another tenant's salt.
    anonymous = lowered(raw, salt="")[0]["cache_salt"]
    assert anonymous == tenant_salt("", "mine")
    assert anonymous not in (sent, other, "mine")


@pytest.mark.parametrize("kind", list(ReplicaKind))
@pytest.mark.parametrize("salt", [SALT, ""])
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_client_salt_never_passes_unchanged(kind: ReplicaKind, salt: str, endpoint: Any) -> None:
    body, _ = lowered(b'{"cache_salt":"mine"}', kind, salt, endpoint)
    assert body["cache_salt"] == tenant_salt(salt, "mine")


@pytest.mark.parametrize("kind", [ReplicaKind.WEFT, ReplicaKind.VLLM, ReplicaKind.UNKNOWN])
def test_possible_vllm_gets_the_tenants_salt(kind: ReplicaKind) -> None:
    assert lowered(b'{"model":"m"}', kind)[0]["cache_salt"] == SALT


def test_other_server_gets_no_salt() -> None:
    assert lowered(b'{"model":"m"}', ReplicaKind.STOCK)[0] == {"model": "m"}


def test_salt_is_valid_for_vllm() -> None:
    salt = tenant_salt("t/e@n\\ant\0")
    assert 0 < len(salt) <= 128
    assert salt.isalnum()


def test_header_carries_the_context_if_the_body_cannot() -> None:
    sent, header = lowered(b'{"model":"m"}', endpoint=EMBEDDINGS)
    assert sent == {"model": "m", "cache_salt": SALT}
    assert json.loads(header) == CONTEXT.to_xargs()
    assert lowered(b'{"model":"m"}', ReplicaKind.VLLM, endpoint=EMBEDDINGS)[1] == b""


def test_program_digests_differ_by_tenant() -> None:
    names = {
        program_digest(ProgramKey(tenant, program))
        for tenant, program in (("a", "b"), ("b", "b"), ("a", "c"), ("ab", ""), ("", "ab"))
    }
    assert len(names) == 5
    assert all(name.isalnum() for name in names)


def test_only_a_changed_body_can_be_too_deep() -> None:
    deep = b"[" * 300 + b"]" * 300
    body, _ = lowered(b'{"input": %b}' % deep)
    assert body["input"] == json.loads(deep)
    with pytest.raises(TooDeep):
        lowered(b'{"input": %b, "session_id": "s"}' % deep)


@pytest.mark.parametrize("kind", [ReplicaKind.WEFT, ReplicaKind.VLLM])
def test_client_cannot_set_the_gateways_xargs(kind: ReplicaKind) -> None:
    forged = {"weft_service": 0, "weft_retain": 1e9, "weft_tags": [9, 5], "weft_priority": 4}
    raw = json.dumps({"vllm_xargs": {**forged, "mine": 1}}).encode()
    sent, _ = lowered(raw, kind)
    ours = CONTEXT.to_xargs() if kind is ReplicaKind.WEFT else {}
    assert sent["vllm_xargs"] == {**ours, "mine": 1}


@pytest.mark.parametrize("kind", list(ReplicaKind))
def test_priority_and_transfer_parameters_are_removed(kind: ReplicaKind) -> None:
    raw = b"""{"model":"m","priority":-9,"kv_transfer_params":{"remote_block_ids":[1]},
        "vllm_xargs":{"kv_transfer_params":"x"}}"""
    body, _ = lowered(raw, kind)
    assert not {"priority", "kv_transfer_params"} & body.keys()
    assert "kv_transfer_params" not in body.get("vllm_xargs", {})
