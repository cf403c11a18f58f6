"""Blocks as the scheduler counts them, and the hashes they are found by."""

from __future__ import annotations

import pytest

compat_kv = pytest.importorskip("weft_engine.compat_kv", exc_type=ImportError)


def test_kernel_blocks_are_grouped_by_the_scheduler_s_blocks():
    import torch

    cache = torch.arange(12 * 3).view(12, 3)
    assert torch.equal(compat_kv.by_blocks(cache, 6)[5].view(-1), cache[10:].reshape(-1))
    assert compat_kv.by_blocks(cache, 12) is cache


@pytest.mark.parametrize("blocks", [0, 5, 24])
def test_a_tensor_that_holds_another_number_of_blocks_is_refused(blocks):
    import torch

    with pytest.raises(ValueError, match="blocks"):
        compat_kv.by_blocks(torch.zeros(12, 3), blocks)
