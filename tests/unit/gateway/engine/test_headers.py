"""Which headers cross the gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.headers import for_client, for_engine, header_safe, sane_request_id


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
    assert kept == b""


def test_what_an_engine_reads_goes_on() -> None:
    kept = for_engine(
        [
            (b"content-type", b"application/json"),
            (b"traceparent", b"00-a-b-01"),
            (b"anthropic-version", b"2023-06-01"),
            (b"anthropic-beta", b"x"),
            (b"x-vllm-priority", b"1"),
        ]
    )
    assert kept == (
        b"content-type: application/json\r\ntraceparent: 00-a-b-01\r\n"
        b"anthropic-version: 2023-06-01\r\nanthropic-beta: x\r\nx-vllm-priority: 1\r\n"
    )


def test_the_report_is_taken_from_the_answer() -> None:
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
def test_what_concerns_the_engines_host_or_connection_stays_behind(name: bytes) -> None:
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
def test_what_describes_the_answer_or_its_limits_goes_on(name: bytes) -> None:
    assert for_client([(name, b"1")])[0] == [(name, b"1")]


def test_an_engine_cannot_speak_in_our_name() -> None:
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
def test_request_ids_are_taken_when_sane(given_id: bytes | None, sane: bool) -> None:
    assert sane_request_id(given_id) == (given_id if sane else None)


@given(st.text())
def test_any_text_becomes_a_header_value(text: str) -> None:
    value = header_safe(text)
    assert all(0x21 <= byte < 0x7F for byte in value)


def test_plain_ids_are_readable() -> None:
    assert header_safe("run:7/agent_2") == b"run:7/agent_2"
    assert header_safe("a b\n%é") == b"a%20b%0A%25%C3%A9"
