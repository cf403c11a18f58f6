"""Series and summary of the emulated device."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from weft_engine.emulated.clock import Counters
from weft_engine.emulated.metrics import EmulatedCollector, summary


def test_the_series_follow_the_counters():
    counters, registry = Counters(), CollectorRegistry()
    EmulatedCollector(counters, "8b-a100", 2.0).register(registry)
    counters.add(steps=3, busy_s=0.5, late_s=0.125, moved_blocks=7)
    text = generate_latest(registry).decode()
    for line in (
        'weft_emulated{dilate="2",preset="8b-a100"} 1.0',
        "weft_emulated_steps_total 3.0",
        "weft_emulated_busy_seconds_total 0.5",
        "weft_emulated_late_seconds_total 0.125",
        "weft_emulated_moved_blocks_total 7.0",
    ):
        assert line in text


def test_the_summary_has_engine_seconds_and_lateness():
    counters = Counters()
    counters.add(steps=3, busy_s=0.5, late_s=0.001)
    assert "3 steps, 0.500 engine seconds, 0.001 late (0.20%)" in summary(counters, "8b-a100", 2)
