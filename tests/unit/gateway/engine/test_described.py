"""Validation of the data that engines report about themselves."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.engine.described import (
    MAX_CARD_BYTES,
    MAX_ID,
    MAX_MODELS,
    MAX_ROOM_TOKENS,
    cache_room,
    cache_sizes,
    costs_json,
    engine_costs,
    engine_requests,
    is_gateway,
    models_of,
    owners,
    runs_plugin,
    slots,
)
from weft_gateway.policies.costs import EngineCosts, StepCosts
from weft_run.plan.costs import costs_of

CARD = {"id": "m", "owned_by": "vllm", "max_model_len": 4096, "permission": [{"id": "p"}]}

# The values that orjson returns.
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def test_model_card_passes_unchanged() -> None:
    assert models_of({"object": "list", "data": [CARD]}) == [CARD]


def test_server_may_serve_no_model() -> None:
    assert models_of({"data": []}) == []


@pytest.mark.parametrize(
    "answer", [None, 7, [], "data", {}, {"data": 7}, {"data": {"id": "m"}}, {"data": [1, {"x": 2}]}]
)
def test_invalid_model_list_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="model"):
        models_of(answer)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "card",
    [
        7,
        None,
        {},
        {"id": 7},
        {"id": ""},
        {"id": "x" * (MAX_ID + 1)},
        {"id": "n", "deep": nested(100)},
        {"id": "n", "long": "x" * MAX_CARD_BYTES},
    ],
)
def test_malformed_model_is_skipped(card: object) -> None:
    assert models_of({"data": [card, CARD]}) == [CARD]


@pytest.mark.parametrize("length", ["4096", -1, 0, 1.5, True, None, [1]])
def test_invalid_length_is_left_out(length: object) -> None:
    (card,) = models_of({"data": [CARD | {"max_model_len": length}]})
    assert "max_model_len" not in card
    assert card["id"] == "m"


def test_number_of_models_is_limited() -> None:
    cards = [{"id": str(n)} for n in range(MAX_MODELS + 1)]
    assert len(models_of({"data": cards})) == MAX_MODELS


@given(st.dictionaries(st.sampled_from(["id", "owned_by", "max_model_len", "x"]), json_values))
def test_every_accepted_model_can_be_serialized(card: dict[str, object]) -> None:
    try:
        found = models_of({"data": [card]})
    except ValueError:
        return
    assert orjson.loads(orjson.dumps(found)) == found
    assert isinstance(found[0]["id"], str)
    owners(found)


def test_owners_are_collected() -> None:
    assert owners([CARD]) == {"vllm"}
    assert owners([CARD, {"id": "n"}]) == {"vllm", None}
    assert owners([{"id": "n", "owned_by": ["vllm"]}]) == {None}
    assert owners([]) == {None}


@pytest.mark.parametrize(
    ("answer", "plugin"),
    [
        ({"weft": {}}, True),
        ({"weft": {"policy": "plas"}, "engines": []}, True),
        (["weft"], False),
        ("weft", False),
        ({"weft": []}, False),
        ({}, False),
        (None, False),
    ],
)
def test_plugin_is_detected_by_its_state(answer: object, plugin: bool) -> None:
    assert runs_plugin(answer) is plugin


@pytest.mark.parametrize(
    ("engines", "room"),
    [
        ([{"cache_tokens": 4096}, {"cache_tokens": 512}], 512),
        ([{"cache_tokens": 0}], 0),
        ([{"cache_tokens": -5}], 0),
        ([{"cache_tokens": 10**18}], MAX_ROOM_TOKENS),
        ([{"cache_tokens": 1e300}, {"cache_tokens": True}, 7, None], None),
        ([], None),
        (7, None),
        (None, None),
    ],
)
def test_cache_room_is_the_smallest_valid_capacity(engines: object, room: int | None) -> None:
    assert cache_room({"weft": {}, "engines": engines}) == room


def info(**labels: str) -> str:
    given = {"block_size": "16", "num_gpu_blocks": "3000", "enable_prefix_caching": "True"}
    pairs = ",".join(f'{name}="{value}"' for name, value in (given | labels).items())
    return f"vllm:cache_config_info{{{pairs}}} 1.0\n"


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("", []),
        ("# HELP vllm:cache_config_info x\n" + info(), [48_000]),
        (info(engine="0") + info(engine="1", num_gpu_blocks="100"), [48_000, 1600]),
        (info() + info(num_gpu_blocks="None"), []),
        (info(enable_prefix_caching="False"), []),
        (info(block_size="16.5"), []),
        (info(num_gpu_blocks="9" * 12), [MAX_ROOM_TOKENS]),
        (info(num_gpu_blocks="9" * 5000), []),
        (info(cpu_kvcache_space_bytes="4294967296", user_specified_block_size="True"), [48_000]),
    ],
)
def test_cache_sizes_are_read_from_the_metrics_of_vllm(text: str, sizes: list[int]) -> None:
    assert cache_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", None),
        ("# HELP vllm:num_requests_running x\n", None),
        ('vllm:num_requests_running{engine="0"} 2.0\n', 2),
        ('vllm:num_requests_running{a="}"} 2\nvllm:num_requests_waiting{a="1"} 3.0\n', 5),
        ("vllm:num_requests_running 0.0\n", 0),
        ('vllm:num_requests_waiting_by_reason{reason="x"} 4.0\n', None),
        ("vllm:num_requests_running NaN\nvllm:num_requests_running 9e999\n", None),
        ("vllm:num_requests_running " + "9" * 400, None),
    ],
)
def test_requests_are_read_from_the_metrics_of_vllm(text: str, count: int | None) -> None:
    assert engine_requests(text) == count


@given(st.text(), st.text())
def test_no_text_breaks_the_reading_of_cache_sizes(labels: str, rest: str) -> None:
    sizes = cache_sizes(f"vllm:cache_config_info{{{labels}}} 1.0\n{rest}")
    assert all(0 <= size <= MAX_ROOM_TOKENS for size in sizes)


COSTS = {
    "step_s": 0.001, "weights_s": 0.01, "prefill_token_s": 1e-4, "decode_sequence_s": 2e-4,
    "context_token_s": 1e-7, "prefill_pair_s": 1e-9, "samples": 100, "relative_error": 0.03,
}  # fmt: skip


@pytest.mark.parametrize(
    ("engines", "found"),
    [
        ([{"slots": 8}], 8),
        ([{"slots": 8}, {"slots": 4}, {}], 12),
        ([{"slots": -8}], 0),
        ([{"slots": "8"}, 7, {"slots": True}], 0),
        ([{"slots": 10**9}], 65_536),
        (None, 0),
    ],
)
def test_slots(engines, found):
    assert slots({"engines": engines}) == found


STATE = {"costs": COSTS, "slots": 8, "kv_blocks": 100, "block_tokens": 16}


def test_step_costs_of_an_engine_are_read() -> None:
    steps = StepCosts(0.001, 0.01, 1e-4, 2e-4, 1e-7, 1e-9, together=8)
    assert engine_costs({"engines": [STATE]}) == EngineCosts(steps, 1600)


def test_attention_costs_nothing_on_engines_that_do_not_report_it() -> None:
    earlier = {name: cost for name, cost in COSTS.items() if name != "prefill_pair_s"}
    found = engine_costs({"engines": [STATE | {"costs": earlier}]})
    assert found is not None
    assert (found.steps.prefill_pair_s, found.steps.step_s) == (0.0, 0.001)


def test_step_costs_pass_through_the_health_of_a_gateway() -> None:
    known = engine_costs({"engines": [STATE]})
    assert known is not None
    assert costs_of({"slots": 8, "costs": costs_json(known)}) == known
    for replica in ({}, {"slots": 8, "costs": None}, {"slots": 0, "costs": costs_json(known)}):
        assert costs_of(replica) is None


def test_engines_behind_one_address_count_as_one() -> None:
    slow = STATE | {"costs": COSTS | {"step_s": 0.003}}
    found = engine_costs({"engines": [STATE, slow]})
    assert found is not None
    assert found.steps.step_s == pytest.approx(0.002)
    assert (found.steps.together, found.kv_tokens) == (16, 3200)
    assert engine_costs({"engines": [STATE, {**STATE, "costs": None}]}) is None


@pytest.mark.parametrize(
    "state",
    [
        None, 7, {}, STATE | {"costs": None}, STATE | {"costs": []}, STATE | {"slots": 0},
        STATE | {"slots": True}, STATE | {"kv_blocks": "9"}, STATE | {"block_tokens": -1},
        STATE | {"costs": COSTS | {"step_s": -1.0}}, STATE | {"costs": COSTS | {"step_s": "0"}},
        STATE | {"costs": COSTS | {"weights_s": 1e9}}, STATE | {"costs": {}},
    ],
)  # fmt: skip
def test_malformed_step_costs_are_ignored(state: object) -> None:
    assert engine_costs({"engines": [state]}) is None
    assert engine_costs({"engines": state}) is None


@given(json_values)
def test_any_state_is_read(state: object) -> None:
    engine_costs({"engines": [state, {"costs": state}]})
    engine_costs({"engines": state})


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"status":"ok","table":{"state":"ok"},"replicas":[]}', True),
        (b"", False),
        (b"OK", False),
        (b"{", False),
        (b"[]", False),
        (b'{"status":"ok"}', False),
        (b'{"table":7,"replicas":7}', False),
    ],
)
def test_a_gateway_is_recognised_by_its_health(body: bytes, found: bool) -> None:
    assert is_gateway(body) is found
