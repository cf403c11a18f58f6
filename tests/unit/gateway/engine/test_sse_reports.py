"""Validation of reports."""

import pytest
from weft_engine.wire import CallReport
from weft_gateway.engine.errors import ReplicaWrongCall
from weft_gateway.engine.sse import read_report

GOOD = CallReport(call="c", service_s=1.0, waiting_s=0.5, prompt_tokens=3, output_tokens=2)


def test_report_of_this_call_is_accepted() -> None:
    assert read_report(GOOD.to_json().encode(), "c") == GOOD


def test_report_of_another_call_raises_wrong_call() -> None:
    with pytest.raises(ReplicaWrongCall):
        read_report(CallReport("call-0123456789ab-7").to_json().encode(), "call-0123456789ab-6")


def test_report_with_a_foreign_id_is_dropped() -> None:
    assert read_report(GOOD.to_json().encode(), "call-0123456789ab-6") is None


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
def test_malformed_report_is_dropped(field: str, value: str) -> None:
    assert read_report(b'{"call":"c","%b":%b}' % (field.encode(), value.encode()), "c") is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"call":1}', b'{"call":"c","queue_path":1}'])
def test_other_values_are_dropped(text: bytes) -> None:
    assert read_report(text, "c") is None
