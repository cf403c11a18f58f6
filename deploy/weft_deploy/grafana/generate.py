"""Grafana dashboards. `make generate` writes them as JSON to deploy/grafana/dashboards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from weft_deploy.grafana import slo
from weft_deploy.grafana.panels import JSON, Choice, Panel, Query, dashboard, rate

FOLDER: Final = Path(__file__).parents[2] / "grafana" / "dashboards"
# Bucket bounds of `weft_call_seconds` in Prometheus's notation.
_SLO: Final = Choice("slo", "Latency target (s)", ("10.0", "2.5", "5.0", "30.0", "60.0"))


def _quantiles(histogram: str, *quantiles: float) -> tuple[Query, ...]:
    return tuple(
        Query(f"histogram_quantile({q}, {rate(histogram + '_bucket', 'le')})", f"p{q * 100:g}")
        for q in quantiles
    )


def latency() -> JSON:
    """Return the dashboard of the clients' view: calls, latency, targets met, and errors."""
    in_time = rate("weft_call_seconds_bucket", where='le="$slo"')
    return dashboard(
        "weft-latency",
        "Weft: latency",
        [
            Panel(
                "Calls within the target",
                "Share of calls that ended within the latency target above.",
                "percentunit",
                (Query(f"{in_time} / {rate('weft_call_seconds_count')}", "within target"),),
                per_row=4,
                kind="stat",
            ),
            Panel(
                "Programs alive",
                "Programs that have begun and not ended, of all gateways.",
                "short",
                (Query("max(weft_programs)", "programs"),),
                per_row=4,
                kind="stat",
            ),
            Panel(
                "Programs begun and ended",
                "Per second. Each gateway on a shared process table reports all programs.",
                "short",
                (
                    Query("max(rate(weft_programs_begun_total[5m]))", "begun"),
                    Query("max(rate(weft_programs_ended_total[5m]))", "ended"),
                ),
            ),
            Panel(
                "Time saved by overlap",
                "Seconds saved per second, by prefills before the turn and by tools that start "
                "before the end of the answer.",
                "short",
                (Query(rate("weft_saved_seconds_total", "overlap"), "{{overlap}}"),),
                stacked=True,
            ),
            Panel(
                "Requests of batches",
                "Per second, by result, and the requests that are left, in thousands.",
                "short",
                (
                    Query(rate("weft_batch_requests_total", "result"), "{{result}}"),
                    Query("sum(weft_batch_requests_left) / 1000", "left, thousands"),
                ),
            ),
            Panel(
                "Batches ended",
                "Per hour, by status.",
                "short",
                (Query("sum by (status) (increase(weft_batches_total[1h]))", "{{status}}"),),
            ),
            Panel(
                "Gateways without their process table",
                "They use a local process table until Redis answers again.",
                "short",
                (Query("sum(weft_table_local)", "gateways"),),
            ),
            Panel(
                "Calls in flight",
                "Each gateway on a shared process table counts all calls, so this is the maximum, "
                "not the sum.",
                "short",
                (Query("sum(max by (replica) (weft_calls_in_flight))", "calls"),),
                per_row=4,
                kind="stat",
            ),
            Panel(
                "Healthy replicas",
                "Replicas that at least one gateway considers healthy.",
                "short",
                (Query("sum(max by (replica) (weft_replica_healthy))", "replicas"),),
                per_row=4,
                kind="stat",
            ),
            Panel(
                "Call latency",
                "Time from the request to the last byte, for all endpoints.",
                "s",
                _quantiles("weft_call_seconds", 0.5, 0.95, 0.99),
            ),
            Panel(
                "Time to first byte",
                "Includes the wait in the engine's queue and the prefill.",
                "s",
                _quantiles("weft_first_byte_seconds", 0.5, 0.95, 0.99),
            ),
            Panel(
                "Calls by outcome",
                "aborted: the client disconnected.",
                "reqps",
                (Query(rate("weft_calls_total", "outcome"), "{{outcome}}"),),
                stacked=True,
            ),
            Panel(
                "Gateway errors",
                "By error code. Errors of engines pass through and are not included.",
                "reqps",
                (Query(rate("weft_errors_total", "code"), "{{code}}"),),
                stacked=True,
            ),
            Panel(
                "Dropped engine reports",
                "The reports were malformed, so the usage of these calls is unknown. The replica "
                "runs another version of the plugin, or does not run it.",
                "short",
                (
                    Query(
                        "sum by (replica) (increase(weft_reports_dropped_total[5m]))",
                        "{{replica}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Failures of background tasks",
                "The gateway restarts a failed task. Its log has the error.",
                "short",
                (Query("sum by (task) (increase(weft_task_failures_total[5m]))", "{{task}}"),),
                stacked=True,
            ),
            Panel(
                "Bodies in memory",
                "Bytes of requests that have not ended; WEFT_BODY_BYTES limits them per gateway.",
                "bytes",
                (Query("sum(weft_body_bytes)", "bytes"),),
            ),
            Panel(
                "Median call latency by endpoint",
                "Time from the request to the last byte.",
                "s",
                (
                    Query(
                        "histogram_quantile(0.5, "
                        f"{rate('weft_call_seconds_bucket', 'le, endpoint')})",
                        "{{endpoint}}",
                    ),
                ),
            ),
            Panel(
                "Gateway overhead",
                "Time in the gateway before it sends a call to a replica.",
                "s",
                _quantiles("weft_overhead_seconds", 0.5, 0.99),
            ),
        ],
        [_SLO],
    )


def cache() -> JSON:
    """Return the dashboard of the engines: prefix cache, tokens, service and waiting times."""
    return dashboard(
        "weft-cache",
        "Weft: cache and engines",
        [
            Panel(
                "Prefix cache hit rate",
                "Share of prompt tokens that were in the prefix cache.",
                "percentunit",
                (
                    Query(
                        f"{rate('weft_cached_tokens_total', 'replica')}"
                        f" / {rate('weft_prompt_tokens_total', 'replica')}",
                        "{{replica}}",
                    ),
                    Query(
                        f"{rate('weft_cached_tokens_total')} / {rate('weft_prompt_tokens_total')}",
                        "all",
                    ),
                ),
            ),
            Panel(
                "Prompt tokens",
                "Tokens per second that were in the cache, and tokens that were computed.",
                "short",
                (
                    Query(rate("weft_cached_tokens_total"), "cached"),
                    Query(
                        f"{rate('weft_prompt_tokens_total')} - {rate('weft_cached_tokens_total')}",
                        "computed",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Output tokens",
                "Tokens per second.",
                "short",
                (Query(rate("weft_output_tokens_total", "replica"), "{{replica}}"),),
                stacked=True,
            ),
            Panel(
                "Preemptions",
                "Preempted calls per second.",
                "short",
                (Query(rate("weft_preemptions_total", "replica"), "{{replica}}"),),
            ),
            Panel(
                "Waiting time per second of service",
                "Time of calls in engine queues divided by their execution time. Above 1, programs "
                "wait longer than they execute. 'for memory' is the part that calls were deferred "
                "for KV memory.",
                "short",
                (
                    Query(
                        f"{rate('weft_waiting_seconds_total', 'replica')}"
                        f" / {rate('weft_service_seconds_total', 'replica')}",
                        "{{replica}}",
                    ),
                    Query(
                        f"{rate('weft_memory_wait_seconds_total', 'replica')}"
                        f" / {rate('weft_service_seconds_total', 'replica')}",
                        "{{replica}}, for memory",
                    ),
                ),
            ),
            Panel(
                "Calls in flight",
                "By replica.",
                "short",
                (Query("max by (replica) (weft_calls_in_flight)", "{{replica}}"),),
                stacked=True,
            ),
        ],
        [],
    )


def files() -> dict[Path, str]:
    """Return the path and the text of each dashboard file."""
    return {
        FOLDER / f"{board['uid']}.json": json.dumps(board, indent=2) + "\n"
        for board in (latency(), cache(), slo.board())
    }


def main() -> None:
    """Write the dashboards."""
    FOLDER.mkdir(exist_ok=True)
    for file, text in files().items():
        file.write_text(text, encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main()
