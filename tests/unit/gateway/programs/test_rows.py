"""Keys, members and rows, to bytes and back."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.model import ProgramKey, Thread
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


@given(st.lists(st.binary(max_size=40)))
def test_packed_reply_round_trips(parts):
    packed = " ".join(str(len(part)) for part in parts).encode() + b"\n" + b"".join(parts)
    assert rows.unpack(packed) == parts


@given(ANY_TEXT)
def test_members_and_leases_name_the_program_and_the_call(name):
    key = ProgramKey("public", name)
    assert rows.key_of(rows.member(key)) == key
    assert rows.leased(rows.lease(key, "call-1")) == (key, "call-1")


def test_keys_of_a_table_share_one_hash_slot():
    keys = rows.Keys("weft")
    made = [
        keys.row(ProgramKey("t", "p}{")), keys.in_flight, keys.activity, keys.leases,
        keys.names("t"),
    ]  # fmt: skip
    assert {key[: key.index(b"}") + 1] for key in made} == {b"{weft}"}
    assert len(set(made)) == len(made)


def test_row_is_read_with_all_fields():
    key = ProgramKey("t", "p")
    row = {
        b"arrival": b"1.5",
        b"ephemeral": b"0",
        b"service": b"0.1",
        b"home": b"r1",
        b"calls": b"3",
        b"calls_closed": b"1",
        b"t:late": b"9.0\n0\nr0\n0\nmain",
        b"t:early": b"2.0\n0\nr1\n3\np\nqa\nb",
    }
    program = rows.program(key, row)
    assert (program.arrival_s, program.service_s, program.home, program.calls) == (
        1.5,
        0.1,
        "r1",
        3,
    )
    assert program.threads == (
        Thread("early", "a\nb", "r1", 2.0, parent="p\nq"),
        Thread("late", "main", "r0", 9.0),
    )
    assert (program.ephemeral, program.ended, program.last_replica) == (False, False, "")
    assert rows.program(key, {**row, b"last_replica": b"r2"}).last_replica == "r2"
    assert rows.program(key, {**row, b"ended": b"1"}).ended
