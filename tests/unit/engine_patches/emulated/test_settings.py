"""Settings of the emulated worker."""

from __future__ import annotations

import json

import pytest
from weft_engine.emulated.presets import preset
from weft_engine.emulated.settings import EmulatedSettings


def test_settings_survive_the_command_line():
    settings = EmulatedSettings("8b-a100", preset("8b-a100"), 2.0, 30)
    assert EmulatedSettings.from_config(json.loads(json.dumps(settings.as_config()))) == settings


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dilate": 0}, "dilate"),
        ({"speed": 2}, "speed"),
        ({"shape": {"slots": 4}}, "shape"),
        ({"name": 5}, "name"),
    ],
)
def test_a_wrong_setting_is_named(change, message):
    config = EmulatedSettings("8b-a100", preset("8b-a100")).as_config()
    with pytest.raises(ValueError, match=message):
        EmulatedSettings.from_config({"emulated": {**config["emulated"], **change}})


@pytest.mark.parametrize("config", [{}, None])
def test_an_engine_without_settings_is_refused(config):
    with pytest.raises(ValueError, match="emulated"):
        EmulatedSettings.from_config(config)
