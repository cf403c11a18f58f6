"""The plugin's settings are checked at start, by name."""

from __future__ import annotations

import pytest
from weft_engine.settings import PluginSettings


def test_defaults_and_values():
    assert PluginSettings.from_config(None).policy == "resident"
    assert PluginSettings.from_config({}).channel == ""
    assert PluginSettings.from_config({"weft": {"policy": "fcfs"}}).policy == "fcfs"


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"policy": "x"}, "policy"),
        ({"colour": 1}, "colour"),
        ({"options": {"queues": 0}}, "queues"),
        ({"max_displacements": -1}, "max_displacements"),
        ("text", "weft"),
    ],
)
def test_a_wrong_setting_is_named(wrong, name):
    with pytest.raises(ValueError, match=name):
        PluginSettings.from_config({"weft": wrong})


@pytest.mark.parametrize("value", ["4", 1.5, True, None, -1])
def test_a_count_that_is_no_whole_number_is_named(value):
    with pytest.raises(ValueError, match="max_displacements"):
        PluginSettings.from_config({"weft": {"max_displacements": value}})


@pytest.mark.parametrize(
    ("name", "value"),
    [("pin_share", 1.5), ("pin_share", "half"), ("swap_gib", -1), ("swap_gib", None),
     ("swap_share", 0), ("swap_share", True), ("tags", 1), ("swap_async", "yes")],
)  # fmt: skip
def test_a_share_or_size_out_of_range_is_named(name, value):
    with pytest.raises(ValueError, match=name):
        PluginSettings.from_config({"weft": {name: value}})
