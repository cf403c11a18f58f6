"""Reports that are believed, and those that are not."""

import pytest
from weft_engine.wire import CallReport
from weft_gateway.api.reports import accept, parse

GOOD = CallReport(call="c", service_s=1.0, waiting_s=0.5, prompt_tokens=3, output_tokens=2)


def test_a_report_of_this_call_is_taken() -> None:
    assert accept(GOOD, "c") == GOOD
    assert parse(GOOD.to_json().encode(), "c") == GOOD


def test_a_report_of_another_call_is_not() -> None:
    assert accept(GOOD, "d") is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("service_s", "-1.0"),
        ("service_s", "1e300"),
        ("waiting_s", "NaN"),
        ("prompt_tokens", "-1"),
        ("prompt_tokens", "1.5"),
        ("output_tokens", '"many"'),
        ("queue_path", "1"),
    ],
)
def test_a_malformed_report_is_none(field: str, value: str) -> None:
    assert parse(b'{"call":"c","%b":%b}' % (field.encode(), value.encode()), "c") is None


@pytest.mark.parametrize(
    "text", [None, b"", b"{", b"[]", b'{"call":1}', b'{"call":"c","queue_path":1}']
)
def test_what_is_no_report_is_none(text: bytes | None) -> None:
    assert parse(text, "c") is None
