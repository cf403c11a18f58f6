"""Exposed metrics."""

from weft_engine.wire import CallReport
from weft_gateway.telemetry.metrics import Metrics


def test_call_is_counted() -> None:
    metrics = Metrics()
    bound = metrics.bind("chat", "r0")
    bound.outcomes["ok"].inc()
    bound.latency.observe(0.2)
    report = CallReport("c", 1.5, 0.25, 1, 100, 60, 20)
    bound.served(report)
    bound.used(report)
    bound.served(CallReport("d", memory_wait_s=3.5))
    metrics.error("replica_closed")
    text = metrics.render().decode()
    assert 'weft_calls_total{endpoint="chat",outcome="ok",replica="r0"} 1.0' in text
    assert 'weft_service_seconds_total{replica="r0"} 1.5' in text
    assert 'weft_memory_wait_seconds_total{replica="r0"} 3.5' in text
    assert 'weft_cached_tokens_total{replica="r0"} 60.0' in text
    assert 'weft_preemptions_total{replica="r0"} 1.0' in text
    assert 'weft_errors_total{code="replica_closed"} 1.0' in text
    assert 'weft_call_seconds_count{endpoint="chat"} 1.0' in text


def test_two_gateways_may_share_a_process() -> None:
    first, second = Metrics(), Metrics()
    first.programs.inc()
    assert "weft_programs 1.0" in first.render().decode()
    assert "weft_programs 0.0" in second.render().decode()


def test_labelled_children_are_cached() -> None:
    metrics = Metrics()
    assert metrics.bind("chat", "r0") is metrics.bind("chat", "r0")
    assert metrics.bind("chat", "r1") is not metrics.bind("chat", "r0")


def test_a_removed_replica_has_no_series() -> None:
    metrics = Metrics()
    for name in ("r0", "r1"):
        metrics.bind("chat", name).outcomes["ok"].inc()
        metrics.memory_waits.labels(name, "fits").inc()
        metrics.dropped.labels(name).inc()
        metrics.healthy.labels(name).set(1)
        metrics.in_flight.labels(name).set(0)
    metrics.forget("r0")
    metrics.forget("unknown")
    text = metrics.render().decode()
    assert 'replica="r0"' not in text
    assert text.count('replica="r1"') > 5
    # A later replica of this name starts at zero.
    metrics.bind("chat", "r0").outcomes["ok"].inc()
    text = metrics.render().decode()
    assert 'weft_calls_total{endpoint="chat",outcome="ok",replica="r0"} 1.0' in text


def test_replicas_have_a_speed_only_while_their_costs_are_known() -> None:
    metrics = Metrics()
    metrics.show_costs({"r0": (0.0001, 0.01), "r1": (0.0, 0.02)}, {"r0": 1_500_000})
    text = metrics.render().decode()
    assert 'weft_replica_work_seconds{replica="r0"} 1.5' in text
    assert 'weft_replica_work_seconds{replica="r1"} 0.0' in text
    assert 'weft_replica_token_seconds{replica="r0",token="prompt"} 0.0001' in text
    assert 'weft_replica_token_seconds{replica="r1",token="answer"} 0.02' in text
    metrics.show_costs({"r1": (0.0, 0.02)}, {"r0": 1_500_000})
    text = metrics.render().decode()
    assert 'replica="r0"' not in text
    assert text.count('replica="r1"') == 3
