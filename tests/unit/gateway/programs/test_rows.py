"""Keys, members and rows, to bytes and back."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model import ProgramKey
from weft_gateway.programs import rows

# Lone surrogates too, because a JSON escape can produce them.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@given(ANY_TEXT)
def test_any_text_round_trips(text):
    assert rows.decode(rows.encode(text)) == text


@given(st.floats(allow_nan=False))
def test_no_float_loses_precision(value):
    assert float(rows.number(value)) == value
    assert math.copysign(1.0, float(rows.number(value))) == math.copysign(1.0, value)


def test_keys_of_a_table_share_one_hash_slot():
    keys = rows.Keys("weft")
    made = [
        keys.row(ProgramKey("t", "p}{")), keys.in_flight, keys.activity, keys.leases,
        keys.names("t"),
    ]  # fmt: skip
    assert {key[: key.index(b"}") + 1] for key in made} == {b"{weft}"}
    assert len(set(made)) == len(made)
