"""The rows of the live view as the page at /ui and `weft top` show them: columns, order, and the
timeline of a program. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from weft_gateway.telemetry.receipts import Receipt

Row = dict[str, Any]

HELD, QUEUED, RUNNING, GAP, ENDED = "held", "queued", "running", "tool gap", "ended"
# The order of the states, the first one needs attention most.
STATES: Final = (HELD, QUEUED, RUNNING, GAP, ENDED)
# The columns by which a client may sort; with a minus, the largest first.
SORTS: Final = (
    "state", "session", "tenant", "since", "context", "share", "hit", "calls", "errors", "output",
    "path_s", "spent",
)  # fmt: skip
PAGE: Final = 100
MOST_ROWS: Final = 200
# Calls of a timeline, and threads.
_MOST_CALLS: Final = 256
_MOST_LANES: Final = 24
# An answer that arrives at once was not streamed: its decoding is not told apart.
_AT_ONCE_S: Final = 0.005


def short(count: float | None) -> str:
    """Return a count for people: 950, 12k, 3.4M."""
    if count is None:
        return "-"
    if count >= 1e6:
        return f"{count / 1e6:.1f}M"
    return f"{count / 1e3:.0f}k" if count >= 1e4 else f"{count:.0f}"


def seconds(amount: float) -> str:
    """Return a duration for people: 0.4 s, 12 s, 3 m 20 s, 2 h 5 m."""
    if amount < 9.95:
        return f"{amount:.1f} s"
    minutes, left = divmod(int(amount + 0.5), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} m"
    return f"{minutes} m {left} s" if minutes else f"{left} s"


def about(row: Row) -> str:
    """Return the state of a program in words, without its duration."""
    if row["state"] == HELD and row["ahead"]:
        ahead = "1 program" if row["ahead"] == 1 else f"{row['ahead']} programs"
        names = f": {row['behind'][0]}" if row["behind"] else ""
        return (
            f"held for memory behind {ahead}{names}{', ...' if names and row['ahead'] > 1 else ''}"
        )
    if row["state"] == GAP:
        return "in a tool gap"
    return f"{row['state']} ({row['open']} calls)" if row["open"] > 1 else str(row["state"])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"


def _calls(row: Row) -> str:
    return f"{row['calls']}, {row['errors']} failed" if row["errors"] else str(row["calls"])


def _budget(row: Row) -> str:
    spent = row["spent"]
    return f"{spent['used']:.10g} of {spent['limit']:.10g} {spent['name']}" if spent else "-"


def _of(part: float | None, whole: float | None) -> str:
    return f"{short(part)} of {short(whole)}" if whole else short(part)


class Column(NamedTuple):
    """A column. text: its text for a row. kind: of its cells, `n` for numbers."""

    title: str
    text: Callable[[Row], str]
    kind: str = "n"


# Of programs, beside the session and its state, which are the first ones.
COLUMNS: Final = (
    Column("Key", lambda row: row["tenant"], "tenant"),
    Column("Context", lambda row: short(row["context"]) + (" ●" if row["resident"] else "")),
    Column("Share of KV", lambda row: _percent(row["share"])),
    Column("Hit rate", lambda row: _percent(row["hit"])),
    Column("Calls", _calls),
    Column("Output", lambda row: short(row["output"])),
    Column("Critical path", lambda row: seconds(row["path_s"])),
    Column("Budget", _budget, "n spent"),
    Column("Replica", lambda row: row["replica"], ""),
)
ENGINES: Final = (
    Column("Engine", lambda row: row["row"], ""),
    Column("State", lambda row: row["state"], "state"),
    Column("Residents", lambda row: short(row["residents"])),
    Column("Held", lambda row: short(row["held"])),
    Column("Free blocks", lambda row: _of(row["free"], row["blocks"])),
    Column("Batch", lambda row: _of(row["batch"], row["slots"])),
    Column("Queue", lambda row: short(row["waiting"])),
    Column("Pace", lambda row: "-" if row["pace"] is None else f"{short(row['pace'])} tok/s"),
)


class Query(NamedTuple):
    """What a viewer looks at. tenant: None for all. text: a part of a session, tenant, state,
    model or replica. sort: one of SORTS, with a minus for the largest first.
    """

    tenant: str | None = None
    text: str = ""
    sort: str = "state"
    limit: int = PAGE


def selected(rows: Iterable[tuple[str, Row]], query: Query) -> tuple[list[Row], dict[str, int]]:
    """Return the first rows of a query, and the number of matching rows by state. rows: each with
    its tenant.
    """
    text, name = query.text.casefold(), query.sort.removeprefix("-")
    found = [
        row
        for tenant, row in rows
        if query.tenant in (None, tenant)
        and (
            not text
            or text in row["session"].casefold()
            or any(text in row[part].casefold() for part in ("tenant", "state", "model", "replica"))
        )
    ]
    counts = dict.fromkeys(STATES, 0)
    for row in found:
        counts[row["state"]] += 1

    def value(row: Row) -> Any:
        if name == "state":
            return STATES.index(row["state"]), row["begun"]
        return row[name]["share"] if name == "spent" else row[name]

    # Rows without a value are the last ones in both directions.
    last = [row for row in found if row[name] is None]
    found = [row for row in found if row[name] is not None] if last else found
    found.sort(key=lambda row: (value(row), row["row"]), reverse=query.sort.startswith("-"))
    return (found + last)[: query.limit], counts


def timeline(receipts: Sequence[Receipt], now_s: float) -> Row:
    """Return a program's calls as bars, one lane for each thread: the parts of each call in
    seconds, in the order held, queued, prefill, decode. receipts: in the order of arrival.
    """
    shown = receipts[-_MOST_CALLS:]
    lanes: dict[str, list[Row]] = {}
    for receipt in shown:
        lanes.setdefault(receipt.thread, []).append(_bar(receipt, now_s))
    ends = [bar["at"] + bar["total_s"] for bars in lanes.values() for bar in bars]
    names = list(lanes)[-_MOST_LANES:]
    return {
        "from": shown[0].arrived_s if shown else now_s,
        "to": max(ends, default=now_s),
        "lanes": [{"thread": name, "calls": lanes[name]} for name in names],
        "left_out": len(receipts) - sum(len(lanes[name]) for name in names),
    }


def _bar(receipt: Receipt, now_s: float) -> Row:
    report, usage = receipt.report, receipt.usage
    total_s = receipt.total_s or max(0.0, now_s - receipt.arrived_s)
    held_s = min(total_s, receipt.held_s + receipt.memory_wait_s)
    in_engine_s = receipt.memory_wait_s if receipt.context is not None else 0.0
    waited_s = 0.0 if report is None else max(0.0, report.waiting_s - in_engine_s)
    if not (receipt.outcome or receipt.first_byte_s):
        # The engine has not said when it began.
        waited_s = total_s
    queued_s = min(total_s - held_s, waited_s)
    left_s, decode_s = total_s - held_s - queued_s, 0.0
    if receipt.first_byte_s:
        whole = bool(receipt.outcome) and receipt.first_byte_s >= total_s - _AT_ONCE_S
        decode_s = left_s if whole else min(left_s, max(0.0, total_s - receipt.first_byte_s))
    return {
        "request_id": receipt.request_id,
        "at": receipt.arrived_s,
        "total_s": total_s,
        "held_s": held_s,
        "queued_s": queued_s,
        "prefill_s": left_s - decode_s,
        "decode_s": decode_s,
        "outcome": receipt.outcome or "in_flight",
        "replica": receipt.replica,
        "prompt": None if usage is None else usage.prompt_tokens,
        "cached": None if usage is None else usage.cached_tokens,
        "output": None if usage is None else usage.output_tokens,
    }


PARTS: Final = ("held", "queued", "prefill", "decode")


def spans(line: Row, width: float) -> list[list[tuple[float, float, str, Row]]]:
    """Return what to draw of a timeline: for each lane the begin and length of each part on a scale
    of `width`, the part, and its call. Gaps between two calls of a lane are the part `gap`.
    """
    scale, drawn = width / max(line["to"] - line["from"], 1e-3), []
    for lane in line["lanes"]:
        parts: list[tuple[float, float, str, Row]] = []
        end_s = lane["calls"][0]["at"]
        for bar in lane["calls"]:
            at_s = bar["at"]
            found = [(end_s, at_s - end_s, "gap")]
            for part in PARTS:
                found.append((at_s, bar[f"{part}_s"], part))
                at_s += bar[f"{part}_s"]
            end_s = max(end_s, at_s)
            parts += [
                ((begin_s - line["from"]) * scale, length_s * scale, part, bar)
                for begin_s, length_s, part in found
                if length_s > 0
            ]
        drawn.append(parts)
    return drawn
