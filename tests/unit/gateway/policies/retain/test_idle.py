"""After which silence a program is taken for ended."""

from __future__ import annotations

import pytest
from weft_gateway.policies.retain.idle import BUCKETS, IdlePolicy, bucket

POLICY = IdlePolicy(shortest_s=60.0, longest_s=3600.0, margin=4.0, quantile=0.99, enough=10)


def observed(**gaps: int) -> list[int]:
    counts = [0] * BUCKETS
    for name, count in gaps.items():
        counts[bucket(float(name.removeprefix("s")))] += count
    return counts


@pytest.mark.parametrize(
    ("gap_s", "index"),
    [(0.0, 0), (1.0, 0), (1.1, 1), (2.0, 1), (2.1, 2), (1024.0, 10), (1e9, BUCKETS - 1)],
)
def test_a_bucket_holds_silences_up_to_its_power_of_two(gap_s, index):
    assert bucket(gap_s) == index


@pytest.mark.parametrize(
    ("gaps", "idle_s"),
    [
        ({}, 3600.0),
        ({"s30": 9}, 3600.0),  # too few to tell
        ({"s30": 100}, 128.0),  # four times 32
        ({"s1": 100}, 60.0),  # not below the shortest
        ({"s3000": 100}, 3600.0),  # nor above the longest
        ({"s1": 99, "s30": 1}, 60.0),  # one in a hundred is let go
        ({"s1": 90, "s30": 10}, 128.0),
    ],
)
def test_the_time_follows_what_was_observed_within_its_bounds(gaps, idle_s):
    assert POLICY.idle_s(observed(**gaps)) == idle_s


def test_what_the_gateway_goes_by_is_as_the_page_on_programs_has_it():
    policy = IdlePolicy(shortest_s=1.0, longest_s=3600.0)
    assert policy.idle_s(observed(s30=32)) == 4 * 32
    assert policy.idle_s(observed(s30=31)) == 3600.0
    assert policy.idle_s(observed(s1=99, s30=1)) == 4
    assert policy.idle_s(observed(s1=98, s30=2)) == 4 * 32
