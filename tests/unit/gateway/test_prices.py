"""The price file."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from weft_gateway import prices
from weft_gateway.prices import Prices, PricesError

FILE = """
[[price]]
model = "Qwen/Qwen3-8B"
input = 0.2
cached = 0.02
output = 0.6

[[price]]
model = "Qwen/Qwen3-8B"
input = 0.1
output = 0.5
from = 2026-11-01

[[price]]
model = "*"
gpu_hour = 3.6
"""
BEFORE, AFTER = (datetime(2026, month, 1, tzinfo=UTC).timestamp() for month in (10, 11))


@pytest.mark.parametrize(
    ("model", "at_s", "dollars"),
    [
        ("Qwen/Qwen3-8B", BEFORE, 0.2 * 4 + 0.02 * 6 + 0.6 * 5),
        ("Qwen/Qwen3-8B", AFTER, 0.1 * 10 + 0.5 * 5),
        ("other", AFTER, 0.001 * 2_000_000),
    ],
)
def test_price_of_a_call_in_dollars_per_million(model, at_s, dollars):
    found = Prices(prices.parsed(FILE)).nanodollars(model, at_s, 10, 6, 5, 2.0)
    assert found == round(dollars * 1000)


def test_model_without_a_price_costs_nothing():
    assert Prices().nanodollars("m", AFTER, 10, 0, 5, 2.0) == 0


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("inptu = 1.0", "price.0.inptu: unknown member; did you mean input?"),
        ("input = -1.0", "price.0.input: Input should be greater than or equal to 0"),
        ('input = "1"', "price.0.input: Input should be a valid number"),
        ("input = 1.0", "price.0: input and output are both needed"),
        ("gpu_hour = 1.0\ninput = 1.0", "price.0: set either gpu_hour, or input and output"),
        ("gpu_hour = nan", "price.0.gpu_hour: "),
        ("gpu_hour = 1.0\nfrom = 5", "price.0.from: "),
        ('gpu_hour = 1.0\n[[price]]\nmodel = "m"\ngpu_hour = 2.0', "price.1: price.0 has the same"),
        ("gpu_hour = 1.0\n[prices]", "prices: unknown member; did you mean price?"),
        ("=", "not valid TOML"),
    ],
)
def test_wrong_file_names_the_member(line, what, tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text(f'[[price]]\nmodel = "m"\n{line}\n')
    with pytest.raises(PricesError) as error:
        prices.load(str(file))
    assert str(error.value).startswith(f"{file}: {what}")
