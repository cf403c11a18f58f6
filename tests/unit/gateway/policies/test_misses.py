"""The sources of a prompt's tokens add up, whatever engines and estimates say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.misses import Cause, Counts, Earlier, split

TOKENS = st.integers(0, 3000)


@given(
    st.builds(Counts, TOKENS, TOKENS, TOKENS, TOKENS),
    st.builds(
        Earlier,
        st.floats(0, 4000),
        st.floats(0, 4000),
        st.sampled_from([Cause.MOVED, Cause.SALT, Cause.EXPIRED, Cause.EVICTED]),
        st.booleans(),
        st.booleans(),
    ),
)
def test_the_sources_add_up(counts: Counts, earlier: Earlier) -> None:
    found = split(counts, earlier)
    parts = (found.cached, found.loaded, found.new, *found.again.values())
    assert min(parts) >= 0
    assert sum(parts) == counts.prompt
    assert found.cached + found.loaded == min(counts.cached + counts.loaded, counts.prompt)


def test_causes_share_a_prompt_by_position() -> None:
    # 100 cached, 400 evicted, 500 moved away, 1,000 changed, the rest is new.
    counts, earlier = Counts(3000, 100, 0, 400), Earlier(1000, 2000, Cause.MOVED, exact=False)
    found = split(counts, earlier)
    assert found == (
        100, 0, 1000, {Cause.EVICTED: 400, Cause.MOVED: 500, Cause.CHANGED: 1000}
    )  # fmt: skip
    # What was given up before others took it has expired.
    ended = split(Counts(1000, 0, 0, 400), Earlier(1000, 1000, ended=True))
    assert ended.again == {Cause.EXPIRED: 1000}


def test_the_rest_of_a_block_is_new() -> None:
    assert split(Counts(1000, 896), Earlier(910, 910)).again == {}
    # A place inside a prompt is an estimate.
    assert split(Counts(1000, 450), Earlier(490, 900, exact=False)).again == {Cause.CHANGED: 450}
