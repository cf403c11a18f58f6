"""Requests of production services."""

from __future__ import annotations

import pytest
from support.traces import recognised
from weft_bench.workloads.schema import Part
from weft_bench.workloads.traces import requests


def request(hashes, tokens, at=0, output=50):
    return {"timestamp": at, "input_length": tokens, "output_length": output, "hash_ids": hashes}


def test_equal_hashes_are_equal_blocks_of_all_requests():
    one, other = requests.mooncake(
        [request([7, 8], 700), request([7, 9], 1024, at=1500)], "mooncake_x"
    )
    assert one.calls[0].parts == (Part("mooncake_x/7", 512), Part("mooncake_x/8", 188))
    assert other.calls[0].parts[0] == one.calls[0].parts[0]
    assert (one.arrival_s, other.arrival_s) == (0.0, 1.5)
    assert one.calls[0].output_tokens == 50
    assert one.id != other.id


def test_hashes_that_contradict_the_length_are_refused():
    with pytest.raises(ValueError, match="1 blocks of 512 do not make 513 tokens"):
        list(requests.mooncake([request([1], 513)], "m"))


def row(time, context="400", generated="20"):
    return {"TIMESTAMP": time, "ContextTokens": context, "GeneratedTokens": generated}


def test_times_of_a_table_are_relative_to_the_first():
    first, second = requests.azure(
        [row("2023-11-16 23:59:59.9799600"), row("2023-11-17 00:00:01.4799600")], "azure_x"
    )
    assert (first.arrival_s, second.arrival_s) == (0.0, 1.5)
    assert first.calls[0].parts == (Part("azure_x/0", 400),)
    assert first.calls[0].output_tokens == 20
    assert first.calls[0].parts != second.calls[0].parts, "their common prefixes are unknown"


def test_invalid_time_is_refused():
    with pytest.raises(ValueError, match="noon"):
        list(requests.azure([row("noon")], "a"))


def test_records_are_recognised():
    assert recognised(request([1], 3)) == "mooncake_"
    assert recognised(row("x")) == "azure_"
