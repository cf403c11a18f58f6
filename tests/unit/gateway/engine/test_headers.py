"""Headers that cross the gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.engine.headers import (
    UnsafeHead,
    for_client,
    for_engine,
    header_safe,
    query_of,
    request_head,
    sane_request_id,
)


def test_credentials_and_connection_headers_never_reach_an_engine() -> None:
    kept = for_engine(
        [
            (b"authorization", b"Bearer sk"),
            (b"x-api-key", b"sk"),
            (b"api-key", b"sk"),
            (b"cookie", b"a=b"),
            (b"proxy-authorization", b"Basic x"),
            (b"openai-organization", b"org"),
            (b"anthropic-auth-token", b"sk"),
            (b"x-weft-call", b"forged"),
            (b"x-weft-context", b"{}"),
            (b"connection", b"keep-alive"),
            (b"transfer-encoding", b"chunked"),
            (b"content-length", b"9"),
            (b"host", b"gateway"),
            (b"accept-encoding", b"gzip"),
        ]
    )
    assert kept == []


def test_headers_for_the_engine_pass() -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"traceparent", b"00-a-b-01"),
        (b"anthropic-version", b"2023-06-01"),
        (b"anthropic-beta", b"x"),
        (b"x-vllm-any", b"1"),
    ]
    assert for_engine([*headers, (b"x-own", b"1"), (b"x-vllm-priority", b"0")]) == headers


def test_head_is_a_request_line_and_unchanged_fields() -> None:
    fields = [(b"accept", b"a\tb"), (b"user-agent", "é".encode())]
    assert request_head("GET", b"/base", b"/x?y=%0a", b"host: h\r\n", fields, 0) == (
        b"GET /base/x?y=%0a HTTP/1.1\r\nhost: h\r\naccept: a\tb\r\n"
        + "user-agent: é\r\n".encode()
        + b"content-length: 0\r\n\r\n"
    )


CONTROLS = [bytes([byte]) for byte in (*range(0x09), *range(0x0A, 0x20), 0x7F)]


@pytest.mark.parametrize("control", [*CONTROLS, b"\r\n", b"\r\nx-evil: 1"], ids=repr)
def test_control_byte_in_a_head_is_refused(control: bytes) -> None:
    for fields in ([(b"accept", b"a%bb" % control)], [(b"a%bb" % control, b"c")]):
        with pytest.raises(UnsafeHead, match="control"):
            request_head("GET", b"", b"/x", b"host: h\r\n", [(b"a", b"b"), *fields], 0)
    with pytest.raises(UnsafeHead, match="target"):
        request_head("GET", b"", b"/x%by" % control, b"", [], 0)


@pytest.mark.parametrize("target", [b"", b"x", b"/a b", "/é".encode(), b"/a\t", b"/x\n"])
def test_target_is_printable_ascii(target: bytes) -> None:
    with pytest.raises(UnsafeHead):
        request_head("GET", b"", target, b"", [], 0)


@pytest.mark.parametrize("query", [b"", b"beta=true", b"a=%0D%0A&b[]=c".replace(b"[]", b"%5B%5D")])
def test_query_passes_unchanged(query: bytes) -> None:
    assert query_of(query) == (b"?" + query if query else b"")


@pytest.mark.parametrize(
    "query", [b"a b", b"a\r\nb", b"a\n", b"\xff", b"%", b"%zz", b"a#b", b'"', b"a" * 2049]
)
def test_invalid_query_is_refused(query: bytes) -> None:
    with pytest.raises(UnsafeHead):
        query_of(query)


def test_report_header_is_removed_from_the_answer() -> None:
    kept, report = for_client([(b"x-weft-report", b"{}"), (b"content-type", b"application/json")])
    assert kept == [(b"content-type", b"application/json")]
    assert report == b"{}"


@pytest.mark.parametrize(
    "name",
    [
        b"set-cookie",
        b"location",
        b"vary",
        b"strict-transport-security",
        b"access-control-allow-origin",
        b"access-control-allow-credentials",
        b"content-security-policy",
        b"clear-site-data",
        b"alt-svc",
        b"link",
        b"refresh",
        b"www-authenticate",
        b"server",
        b"date",
        b"via",
        b"connection",
        b"keep-alive",
        b"transfer-encoding",
        b"content-length",
        b"trailer",
        b"upgrade",
        b"x-weft-saved-s",
        b"x-unheard-of",
    ],
)
def test_headers_about_the_engines_host_or_connection_are_dropped(name: bytes) -> None:
    assert for_client([(name, b"1"), (b"content-type", b"x")])[0] == [(b"content-type", b"x")]


@pytest.mark.parametrize(
    "name",
    [
        b"content-type",
        b"content-encoding",
        b"cache-control",
        b"retry-after",
        b"retry-after-ms",
        b"x-should-retry",
        b"x-ratelimit-remaining-tokens",
        b"anthropic-ratelimit-requests-limit",
        b"openai-processing-ms",
        b"x-vllm-x",
    ],
)
def test_headers_about_the_answer_or_its_limits_pass(name: bytes) -> None:
    assert for_client([(name, b"1")])[0] == [(name, b"1")]


def test_engine_cannot_set_weft_headers() -> None:
    kept, _ = for_client(
        [(b"x-weft-program", b"x"), (b"x-weft-replica", b"y"), (b"x-request-id", b"z")]
    )
    assert kept == []


def test_repeated_headers_are_all_kept() -> None:
    kept, _ = for_client([(b"warning", b"1"), (b"warning", b"2")])
    assert kept == [(b"warning", b"1"), (b"warning", b"2")]


@pytest.mark.parametrize(
    ("given_id", "sane"),
    [
        (b"abc-123", True),
        (b"x" * 128, True),
        (b"x" * 129, False),
        (b"", False),
        (b"a b", False),
        (b"caf\xe9", False),
        (None, False),
    ],
)
def test_valid_request_ids_are_accepted(given_id: bytes | None, sane: bool) -> None:
    assert sane_request_id(given_id) == (given_id if sane else None)


@given(st.text())
def test_every_text_becomes_a_valid_header_value(text: str) -> None:
    value = header_safe(text)
    assert all(0x21 <= byte < 0x7F for byte in value)


def test_plain_ids_are_readable() -> None:
    assert header_safe("run:7/agent_2") == b"run:7/agent_2"
    assert header_safe("a b\n%é") == b"a%20b%0A%25%C3%A9"
