"""The dashboards. `python -m weft_deploy.grafana.generate` writes them as JSON to
deploy/grafana/dashboards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from weft_deploy.grafana.panels import JSON, Choice, Panel, Query, dashboard

FOLDER: Final = Path(__file__).parents[2] / "grafana" / "dashboards"
# Bounds of `weft_call_seconds`' buckets, as Prometheus writes them.
_SLO: Final = Choice("slo", "A call is in time within (s)", ("10.0", "2.5", "5.0", "30.0", "60.0"))
_WINDOW: Final = "[$__rate_interval]"


def _rate(metric: str, by: str = "", where: str = "") -> str:
    """The summed rate of a counter per second, for each value of the label `by`."""
    selector = f"{{{where}}}" if where else ""
    group = f" by ({by})" if by else ""
    return f"sum{group} (rate({metric}{selector}{_WINDOW}))"


def _quantiles(histogram: str, *quantiles: float) -> tuple[Query, ...]:
    return tuple(
        Query(f"histogram_quantile({q}, {_rate(histogram + '_bucket', 'le')})", f"p{q * 100:g}")
        for q in quantiles
    )


def latency() -> JSON:
    """What clients see: how many calls, how fast, how many in time, how many fail."""
    in_time = _rate("weft_call_seconds_bucket", where='le="$slo"')
    return dashboard(
        "weft-latency",
        "Weft: latency",
        [
            Panel(
                "Calls in time",
                "Share of the calls that ended within the bound chosen above.",
                "percentunit",
                (Query(f"{in_time} / {_rate('weft_call_seconds_count')}", "in time"),),
                per_row=4,
                kind="stat",
            ),
            Panel(
                "Programs alive",
                "Begun and not ended, over all gateways.",
                "short",
                (Query("max(weft_programs)", "programs"),),
                per_row=4,
                kind="stat",
            ),
            Panel(
                "Programs begun and ended",
                "Per second. Every gateway on one process table tells of all of them.",
                "short",
                (
                    Query("max(rate(weft_programs_begun_total[5m]))", "begun"),
                    Query("max(rate(weft_programs_ended_total[5m]))", "ended"),
                ),
            ),
            Panel(
                "Time saved by overlap",
                "Seconds a second: prefills ahead of their turns, tools told before their answers' "
                "ends.",
                "short",
                (Query(_rate("weft_saved_seconds_total", "overlap"), "{{overlap}}"),),
                stacked=True,
            ),
            Panel(
                "Gateways without their process table",
                "They go on by a view of their own until Redis is back.",
                "short",
                (Query("sum(weft_table_local)", "gateways"),),
            ),
            Panel(
                "Calls in flight",
                "Every gateway on one process table counts all of them; so the largest, not the "
                "sum.",
                "short",
                (Query("sum(max by (replica) (weft_calls_in_flight))", "calls"),),
                per_row=4,
                kind="stat",
            ),
            Panel(
                "Healthy replicas",
                "Healthy to at least one gateway.",
                "short",
                (Query("sum(max by (replica) (weft_replica_healthy))", "replicas"),),
                per_row=4,
                kind="stat",
            ),
            Panel(
                "From request to end",
                "All endpoints; a stream ends with its last byte.",
                "s",
                _quantiles("weft_call_seconds", 0.5, 0.95, 0.99),
            ),
            Panel(
                "From request to the first byte",
                "The wait in the engine's queue and the prefill are in it.",
                "s",
                _quantiles("weft_first_byte_seconds", 0.5, 0.95, 0.99),
            ),
            Panel(
                "Calls by outcome",
                "aborted: the client has gone.",
                "reqps",
                (Query(_rate("weft_calls_total", "outcome"), "{{outcome}}"),),
                stacked=True,
            ),
            Panel(
                "Errors of the gateway's own",
                "By code. Those of engines pass through and are not in it.",
                "reqps",
                (Query(_rate("weft_errors_total", "code"), "{{code}}"),),
                stacked=True,
            ),
            Panel(
                "Reports of engines that were dropped",
                "They were malformed, and what these calls used is not known: the replica runs "
                "another version of the plugin, or something else than the plugin.",
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
                "Each was restarted; the gateways' logs have the errors.",
                "short",
                (Query("sum by (task) (increase(weft_task_failures_total[5m]))", "{{task}}"),),
                stacked=True,
            ),
            Panel(
                "Median call by endpoint",
                "From request to end.",
                "s",
                (
                    Query(
                        "histogram_quantile(0.5, "
                        f"{_rate('weft_call_seconds_bucket', 'le, endpoint')})",
                        "{{endpoint}}",
                    ),
                ),
            ),
            Panel(
                "The gateway's own time",
                "Before a call is on its way to a replica.",
                "s",
                _quantiles("weft_overhead_seconds", 0.5, 0.99),
            ),
        ],
        [_SLO],
    )


def cache() -> JSON:
    """What the engines do: prefix cache, tokens, service and waiting, for each replica."""
    return dashboard(
        "weft-cache",
        "Weft: cache and engines",
        [
            Panel(
                "Prefix cache hit rate",
                "Prompt tokens found in the cache, of all prompt tokens.",
                "percentunit",
                (
                    Query(
                        f"{_rate('weft_cached_tokens_total', 'replica')}"
                        f" / {_rate('weft_prompt_tokens_total', 'replica')}",
                        "{{replica}}",
                    ),
                    Query(
                        f"{_rate('weft_cached_tokens_total')}"
                        f" / {_rate('weft_prompt_tokens_total')}",
                        "all",
                    ),
                ),
            ),
            Panel(
                "Prompt tokens",
                "Per second: found in the cache, and computed.",
                "short",
                (
                    Query(_rate("weft_cached_tokens_total"), "found"),
                    Query(
                        f"{_rate('weft_prompt_tokens_total')}"
                        f" - {_rate('weft_cached_tokens_total')}",
                        "computed",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Output tokens",
                "Per second.",
                "short",
                (Query(_rate("weft_output_tokens_total", "replica"), "{{replica}}"),),
                stacked=True,
            ),
            Panel(
                "Preemptions",
                "Running calls that had to make room, per second.",
                "short",
                (Query(_rate("weft_preemptions_total", "replica"), "{{replica}}"),),
            ),
            Panel(
                "Waiting for each second of service",
                "Time of calls in engine queues over their execution time. Above 1, programs wait "
                "for longer than they are served.",
                "short",
                (
                    Query(
                        f"{_rate('weft_waiting_seconds_total', 'replica')}"
                        f" / {_rate('weft_service_seconds_total', 'replica')}",
                        "{{replica}}",
                    ),
                ),
            ),
            Panel(
                "Calls in flight",
                "By replica: is the load even?",
                "short",
                (Query("max by (replica) (weft_calls_in_flight)", "{{replica}}"),),
                stacked=True,
            ),
        ],
        [],
    )


def files() -> dict[Path, str]:
    """Every dashboard's file and its text."""
    return {
        FOLDER / f"{board['uid']}.json": json.dumps(board, indent=2) + "\n"
        for board in (latency(), cache())
    }


def main() -> None:
    """Write the dashboards."""
    FOLDER.mkdir(exist_ok=True)
    for file, text in files().items():
        file.write_text(text, encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main()
