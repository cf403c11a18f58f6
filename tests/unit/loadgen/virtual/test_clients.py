"""Clients of simulated programs, as the engines see them."""

from __future__ import annotations

from weft_bench.virtual.clients import Client, Clients, Shared
from weft_engine.wire import CallContext

CONTEXT = CallContext("program/1", "program", 0.0, 0.0, 0.0, 0.0)
KNOWN = {"program": Client("a")}


def test_engines_that_share_by_tenant_are_sent_the_tenant():
    sent = Clients(KNOWN, Shared.TENANTS).context(CONTEXT)
    assert (sent.tenant, sent.program) == ("a", "program")


def test_a_tenant_takes_the_place_of_its_programs_under_vtc():
    sent = Clients(KNOWN, Shared.CLIENTS).context(CONTEXT)
    assert (sent.tenant, sent.program) == ("", "a")


def test_other_engines_and_programs_without_a_client_have_one_tenant():
    sent = Clients(KNOWN).context(CONTEXT)
    assert (sent.tenant, sent.program) == ("", "program")
    assert Clients({}, Shared.TENANTS).context(CONTEXT) is CONTEXT
