"""The alias table: requirements on its rows and their order."""

from __future__ import annotations

from weft_gateway.programs.aliases import BODY, HEADERS


def test_header_names_are_lower_case_and_unique():
    names = [alias.program for alias in HEADERS]
    assert len(set(names)) == len(names)
    for alias in HEADERS:
        for name in (alias.program, alias.thread, alias.parent, alias.final):
            assert name == name.lower()


def test_no_row_names_a_user():
    assert all("user" not in row.program for row in BODY)
    assert all(b"user" not in alias.program for alias in HEADERS)


def test_weft_names_come_first():
    assert HEADERS[0].program == b"x-weft-program"


def test_body_paths_are_unique_and_chains_come_last():
    paths = [row.program for row in BODY]
    assert len(set(paths)) == len(paths)
    chained = [row.chained for row in BODY]
    assert chained == sorted(chained)


def test_names_of_other_tools_are_known():
    names = {alias.program for alias in HEADERS}
    assert names >= {
        b"x-litellm-trace-id",
        b"helicone-session-id",
        b"x-bf-session-id",
        b"x-conversation-id",
        b"x-session-affinity",
        b"x-correlation-id",
    }
    # Some tools send a correlation id per request, so more specific names come first.
    assert HEADERS[-1].program == b"x-correlation-id"
