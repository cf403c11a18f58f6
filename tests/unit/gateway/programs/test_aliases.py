"""The table of names: requirements on its rows and their order."""

from __future__ import annotations

from weft_gateway.programs.aliases import BODY, HEADERS, TRACEPARENT, Decides

ROWS = (*HEADERS, *BODY, TRACEPARENT)


def decided(decides: Decides) -> set[str]:
    return {row.text for row in ROWS if row.decides is decides}


def test_each_name_has_one_row_and_a_meaning():
    places = [row.where for row in ROWS]
    assert len(set(places)) == len(places)
    assert all(len(row.means) > 10 for row in ROWS)


def test_header_names_are_lower_case():
    for row in HEADERS:
        for name in (row.where, row.thread or b"", row.parent or row.above or b"", row.final):
            assert name == name.lower()


def test_a_person_or_a_request_decides_nothing():
    people = {"user", "safety_identifier", "metadata.user_id"}
    assert decided(Decides.NOTHING) == people | {"x-request-id", "traceparent"}


def test_names_for_caches_routers_and_logs_decide_only_placement():
    names = {"prompt_cache_key", "x-session-affinity", "x-smg-routing-key", "x-correlation-id"}
    assert decided(Decides.PLACEMENT) == names


def test_weft_names_come_first():
    assert HEADERS[0].where == b"x-weft-program"


def test_chains_come_after_sessions_in_the_body():
    chained = [row.chained for row in BODY if row.decides is Decides.PROGRAM]
    assert chained == sorted(chained)
