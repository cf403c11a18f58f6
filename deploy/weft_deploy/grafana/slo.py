"""The dashboard of deadlines: attainment against its goal, slack, misses, fairness."""

from __future__ import annotations

from weft_deploy.grafana.panels import JSON, Panel, Query, dashboard, rate

_UNITS = "weft_slo_programs_total"
# Few units end per minute: a longer window than for calls.
_WINDOW = "[5m]"


def _ended(outcome: str = "") -> str:
    selector = f'{{outcome="{outcome}"}}' if outcome else ""
    return f"sum by (class) (increase({_UNITS}{selector}{_WINDOW}))"


def _attainment() -> Panel:
    return Panel(
        "Attainment by class",
        "Share of programs, turns and calls that met their target, of those that ended within 5 "
        "minutes. Units that were given up, failed or refused are not met. 'goal' is `attainment` "
        "in the SLO file.",
        "percentunit",
        (
            Query(f"{_ended('met')} / ({_ended()} > 0)", "{{class}}"),
            Query("max by (class) (weft_slo_goal)", "{{class}}, goal"),
        ),
        most=1,
    )


def _slack(quantile: float) -> Query:
    buckets = rate("weft_slo_slack_seconds_bucket", "le, class")
    return Query(
        f"histogram_quantile({quantile}, {buckets})", f"{{{{class}}}}, p{quantile * 100:g}"
    )


def _replicas() -> list[Panel]:
    when = "Empty unless classes or the balancer need predicted costs."

    def speed(of: str) -> Panel:
        return Panel(
            f"Speed of replicas: {of}s",
            f"Tokens of {of}s per second, as predicted for one call by itself. {when}",
            "short",
            (
                Query(
                    f"1 / (max by (replica) (weft_replica_{of}_token_seconds) > 0)", "{{replica}}"
                ),
            ),
            per_row=3,
        )

    return [
        Panel(
            "Work of replicas",
            f"Predicted cost of the open calls of all gateways. {when}",
            "s",
            (Query("max by (replica) (weft_replica_work_seconds)", "{{replica}}"),),
            per_row=3,
        ),
        speed("prompt"),
        speed("answer"),
    ]


def board() -> JSON:
    """Return the dashboard."""
    return dashboard(
        "weft-slo",
        "Weft: deadlines",
        [
            _attainment(),
            Panel(
                "Misses by cause",
                "Units that missed their target within 5 minutes. queue, memory: waits. prefill, "
                "answer: longer than predicted. client: the time between calls. deadline: too "
                "short for the predicted path. held: the first call, by late: hold. given_up: "
                "idle, or another turn began. failed: its call failed. refused: not served.",
                "short",
                (
                    Query(
                        f"sum by (class, cause) (increase(weft_slo_misses_total{_WINDOW})) > 0",
                        "{{class}}, {{cause}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Units by outcome",
                "Programs, turns and calls with a target that ended within 5 minutes.",
                "short",
                (
                    Query(
                        f"sum by (outcome) (increase({_UNITS}{_WINDOW}))",
                        "{{outcome}}",
                    ),
                ),
                stacked=True,
            ),
            Panel(
                "Slack of calls",
                "Budget minus predicted time when a call is sent. Below 0, the call is predicted "
                "to take longer than its part of the deadline.",
                "s",
                (_slack(0.1), _slack(0.5)),
                signed=True,
            ),
            Panel(
                "Fairness between tenants",
                "Jain's index of the last 5 to 10 minutes: 1 if all tenants have the same "
                "attainment, or the same service by weight. The least fair gateway.",
                "short",
                (Query("min by (of) (weft_slo_jain >= 0)", "{{of}}"),),
                most=1,
            ),
            *_replicas(),
        ],
        [],
    )
