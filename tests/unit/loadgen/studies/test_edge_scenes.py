"""Workloads on which Weft is expected to lose."""

from __future__ import annotations

from itertools import pairwise

import pytest
from weft_bench.studies.edge_scenes import BY_NAME, EDGES, Edge
from weft_bench.workloads.cutting import fit
from weft_engine.emulated.presets import preset

_ALL = pytest.mark.parametrize("edge", EDGES, ids=[edge.name for edge in EDGES])


def _tokens(edge: Edge) -> list[int]:
    """Return the tokens of the longest call of each program."""
    programs, _ = edge.play(0, edge.programs)
    return [
        max(sum(part.tokens for part in call.parts) + call.output_tokens for call in program.calls)
        for program in programs
    ]


def test_names_differ() -> None:
    assert len(BY_NAME) == len(EDGES)


@_ALL
def test_programs_depend_only_on_the_seed(edge: Edge) -> None:
    programs, arrivals = edge.play(1, 8)
    again, times = edge.play(1, 4)
    assert (programs[:4], arrivals[:4]) == (again, times)
    assert len({program.id for program in programs}) == 8
    assert edge.play(2, 4)[0] != again
    assert all(before < after for before, after in pairwise(arrivals))


@_ALL
def test_every_call_fits_the_engine_and_none_is_cut(edge: Edge) -> None:
    assert max(_tokens(edge)) < edge.kv_blocks * 16 / 2
    programs, _ = edge.play(0, 20)
    ready = [fit(program, preset("8b-a100").context, 4.0) for program in programs]
    assert all(one is not None and not one.cut for one in ready)


def test_thrashing_contexts_exceed_the_cache() -> None:
    edge = BY_NAME["few long contexts, short cache"]
    assert sum(_tokens(edge)[:6]) > edge.kv_blocks * 16 > sum(_tokens(edge)[:4])


def test_documents_are_shared_and_too_many_for_one_replica() -> None:
    edge = BY_NAME["documents that programs share"]
    programs, _ = edge.play(0, edge.programs)
    documents = {program.calls[0].parts[1] for program in programs}
    size = next(iter(documents)).tokens
    assert len(documents) * size > edge.kv_blocks * 16 > len(documents) / edge.replicas * size


def test_threads_run_in_parallel_and_are_joined() -> None:
    programs, _ = BY_NAME["threads side by side"].play(0, 2)
    wide = [number for number, call in enumerate(programs[0].calls) if not call.needs(number)]
    assert len(wide) == 12
    assert programs[0].calls[-1].needs(len(programs[0].calls) - 1) == tuple(range(14))
    assert [call.needs(n) for n, call in enumerate(programs[1].calls)] == [(), (0,), (1,), (2,)]
