"""Reports that are believed, and those that are not."""

from dataclasses import replace

import pytest

from engine_patches.wire import CallReport
from gateway.api.reports import accept, parse

GOOD = CallReport(call="c", service_s=1.0, waiting_s=0.5, prompt_tokens=3, output_tokens=2)


def test_a_report_of_this_call_is_taken() -> None:
    assert accept(GOOD, "c") == GOOD
    assert parse(GOOD.to_json().encode(), "c") == GOOD


def test_a_report_of_another_call_is_not() -> None:
    assert accept(GOOD, "d") is None


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, service_s=-1.0),
        replace(GOOD, waiting_s=float("nan")),
        replace(GOOD, service_s=float("inf")),
        replace(GOOD, prompt_tokens=-1),
        replace(GOOD, output_tokens="many"),  # type: ignore[arg-type]
    ],
)
def test_impossible_reports_are_not(bad: CallReport) -> None:
    assert accept(bad, "c") is None


@pytest.mark.parametrize(
    "text", [None, b"", b"{", b"[]", b'{"call":1}', b'{"call":"c","queue_path":1}']
)
def test_what_is_no_report_is_none(text: bytes | None) -> None:
    assert parse(text, "c") is None
