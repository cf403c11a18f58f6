"""The sources of a prompt's tokens add up, whatever engines and estimates say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.policies.misses import Cause, split

TOKENS = st.integers(0, 3000)


REACH = st.floats(0, 4000)
LOST = st.sampled_from([Cause.MOVED, Cause.SALT, Cause.EXPIRED, Cause.EVICTED])


@given(TOKENS, TOKENS, TOKENS, TOKENS, st.tuples(REACH, REACH), LOST, st.booleans(), st.booleans())
def test_the_sources_add_up(
    prompt: int,
    cached: int,
    loaded: int,
    evicted: int,
    reach: tuple[float, float],
    lost: Cause,
    ended: bool,
    exact: bool,
) -> None:
    found = split(prompt, cached, loaded, evicted, reach=reach, lost=lost, ended=ended, exact=exact)
    parts = (found.cached, found.loaded, found.new, *found.again.values())
    assert min(parts) >= 0
    assert sum(parts) == prompt
    assert found.cached + found.loaded == min(cached + loaded, prompt)


def test_causes_share_a_prompt_by_position() -> None:
    # 100 cached, 400 evicted, 500 moved away, 1,000 changed, the rest is new.
    found = split(3000, 100, 0, 400, reach=(1000, 2000), lost=Cause.MOVED, exact=False)
    assert found == (
        100, 0, 1000, {Cause.EVICTED: 400, Cause.MOVED: 500, Cause.CHANGED: 1000}
    )  # fmt: skip
    # What was given up before others took it has expired.
    ended = split(1000, 0, 0, 400, reach=(1000, 1000), ended=True)
    assert ended.again == {Cause.EXPIRED: 1000}


def test_the_rest_of_a_block_is_new() -> None:
    assert split(1000, 896, reach=(910, 910)).again == {}
    # A place inside a prompt is an estimate.
    assert split(1000, 450, reach=(490, 900), exact=False).again == {Cause.CHANGED: 450}
