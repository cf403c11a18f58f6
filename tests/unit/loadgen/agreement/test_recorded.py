"""Recorded sessions as chats and as parts of the same lengths."""

from __future__ import annotations

import json

import pytest
from weft_bench.agreement.recorded import sessions
from weft_bench.workloads.schema import TraceError

BLOCK = 64


@pytest.fixture
def data(tmp_path):
    """A folder with one session of three calls; the second answer's end was cut off."""
    first = list(range(6))
    blocks = [first, [*first, 6, 7, 8], [*first, 6, 9, 10]]
    record = {
        "id": "a",
        "block_size": BLOCK,
        "tool_tokens": 2 * BLOCK,
        "system_tokens": BLOCK,
        "requests": [
            {
                "t": 10.0 * n, "in": len(ids) * BLOCK, "out": 100, "stop": "tool_use",
                "hash_ids": ids, "think_time": 60.0 if n else 0.0,
            }
            for n, ids in enumerate(blocks)
        ],
    }  # fmt: skip
    folder = tmp_path / "coding_sessions"
    folder.mkdir()
    (folder / "sessions.jsonl").write_text(json.dumps(record) + "\n")
    return tmp_path


def test_sessions_keep_their_lengths_and_cut_long_pauses(data):
    (session,) = sessions(data, 0, 1, 16)
    # The recorded blocks, and the three tokens before an answer.
    assert [c.prompt_tokens for c in session.calls] == [6 * BLOCK + 3, 9 * BLOCK + 3, 9 * BLOCK + 3]
    assert [c.max_tokens for c in session.calls] == [100, 100, 100]
    assert [c.call.gap_s for c in session.calls[:2]] == [10.0, 10.0]
    assert len(sessions(data, 0, 1, 2)[0].calls) == 2
    with pytest.raises(TraceError, match="1 sessions that fit, not 2"):
        sessions(data, 0, 2, 16)


def test_messages_and_parts_share_the_same_beginning(data):
    first, second, third = (c.call for c in sessions(data, 0, 1, 16)[0].calls)
    for earlier, later in ((first, second), (first, third)):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert later.parts[: len(earlier.messages)] == earlier.parts[:-1]
    assert second.messages[-1] != third.messages[-1]
    assert not {part.name for part in second.parts[-2:]} & {part.name for part in third.parts}


@pytest.mark.engine
def test_the_template_of_the_demo_model_makes_as_many_tokens(data, tmp_path):
    from transformers import AutoTokenizer
    from weft_deploy.local.demo_model import ensure_demo_model

    tokenizer = AutoTokenizer.from_pretrained(ensure_demo_model(tmp_path / "model"))
    for ready in sessions(data, 0, 1, 16)[0].calls:
        text = tokenizer.apply_chat_template(
            list(ready.call.messages), tokenize=False, add_generation_prompt=True
        )
        assert len(tokenizer.encode(text)) == ready.prompt_tokens
