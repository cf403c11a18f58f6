"""The rows of the live view: programs, engines, events, and the timeline of a program. Pure.

The page at /ui and `weft top` show these rows. A row contains points in time instead of durations,
so it changes only with an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from weft_gateway.model import Program, ProgramKey
from weft_gateway.model.load import EngineLoad
from weft_gateway.telemetry.receipts import Receipt

Row = dict[str, Any]

HELD, QUEUED, RUNNING, GAP, ENDED = "held", "queued", "running", "tool gap", "ended"
# The order of the states, the first one needs attention most.
STATES: Final = (HELD, QUEUED, RUNNING, GAP, ENDED)
# The columns by which a client may sort; with a minus, the largest first.
SORTS: Final = (
    "state", "session", "tenant", "since", "context", "share", "hit", "calls", "errors", "output",
    "path_s", "service_s", "begun", "spent",
)  # fmt: skip
PAGE: Final = 50
MOST_ROWS: Final = 200
# Names of programs before a held one, calls of a timeline, and threads.
_NAMED: Final = 3
_MOST_CALLS: Final = 256
_MOST_LANES: Final = 24
# An answer that arrives at once was not streamed: its decoding is not told apart.
_AT_ONCE_S: Final = 0.005


class Request(NamedTuple):
    """A request that is in this gateway now. since_s: Unix time. sent: the engine has it. answers:
    its answer has begun. tokens: of its prompt. ahead: programs before it, if it waits for memory.
    replica: "" before one is chosen.
    """

    since_s: float
    sent: bool
    answers: bool
    tokens: int
    ahead: int
    replica: str


class Event(NamedTuple):
    """Something that happened. number: of all events of the gateway. key: its program, None for an
    event of a replica, which only administrators see. what: a word. text: about it.
    """

    number: int
    at_s: float
    what: str
    key: ProgramKey | None
    text: str = ""

    def to_json(self) -> Row:
        """Return the event in the API's format."""
        return {
            "number": self.number,
            "at": self.at_s,
            "what": self.what,
            "session": None if self.key is None else self.key.program,
            "text": self.text,
        }


class Facts(NamedTuple):
    """What the gateway knows about a program beside its row of the process table. row: its opaque
    name, which engines know too. tenant: its name for people. context: tokens of its last call.
    ended_s: None if it is alive. residents: the sessions with a place at its replica, as far as its
    tenant may know them. spent: its use of a budget, None without one.
    """

    key: ProgramKey
    row: str
    tenant: str
    model: str = ""
    replica: str = ""
    context: int = 0
    ended_s: float | None = None
    requests: Sequence[Request] = ()
    residents: Sequence[str] = ()
    spent: Mapping[str, Any] | None = None


def program_row(facts: Facts, program: Program | None, load: EngineLoad | None) -> Row:
    """Return the row of a program. program: None if the process table does not have it any more.
    load: of its replica, None if unknown.
    """
    requests = facts.requests
    state, since_s, ahead = _state(facts, program, load)
    context = max(facts.context, max((request.tokens for request in requests), default=0))
    size = 0 if load is None else load.tokens
    row: Row = {
        "row": facts.row,
        "session": facts.key.program,
        "tenant": facts.tenant,
        "model": facts.model,
        "replica": facts.replica,
        "state": state,
        "since": since_s,
        "ahead": ahead,
        "behind": [name for name in facts.residents if name != facts.key.program][:_NAMED]
        if state == HELD
        else [],
        "open": len(requests),
        "context": context,
        "share": round(context / size, 4) if size else None,
        "resident": load is not None and facts.row in load.residents,
        "spent": None if facts.spent is None else dict(facts.spent),
    }
    if program is None:
        program = Program(facts.key, since_s)
    prompt = program.prompt_tokens
    return row | {
        "begun": program.arrival_s,
        "calls": program.calls,
        "errors": program.errors,
        "hit": round(program.cached_tokens / prompt, 4) if prompt else None,
        "prompt": prompt,
        "cached": program.cached_tokens,
        "output": program.output_tokens,
        "path_s": round(program.critical_path_s, 2),
        "service_s": round(program.service_s, 2),
        "waiting_s": round(program.waiting_s, 2),
    }


def _state(
    facts: Facts, program: Program | None, load: EngineLoad | None
) -> tuple[str, float, int]:
    """Return the state, its beginning, and the programs before a held one."""
    requests = facts.requests
    if not requests:
        if facts.ended_s is not None:
            return ENDED, facts.ended_s, 0
        if program is not None and program.threads:
            # Another gateway serves its call.
            return RUNNING, program.threads[0].arrival_s, 0
        if program is not None:
            return GAP, program.last_completion_s or program.arrival_s, 0
        return ENDED, 0.0, 0
    since_s = min(request.since_s for request in requests)
    if any(request.answers for request in requests):
        return RUNNING, since_s, 0
    sent = [request for request in requests if request.sent]
    if not sent:
        return HELD, since_s, max(request.ahead for request in requests)
    if load is None:
        return RUNNING, since_s, 0
    if facts.row in load.active:
        return RUNNING, since_s, 0
    if facts.row in load.ahead:
        return HELD, since_s, load.ahead[facts.row]
    return (QUEUED if load.named or load.waiting else RUNNING), since_s, 0


def engine_row(
    name: str,
    state: str,
    calls: int,
    slots: int,
    load: EngineLoad | None,
    pace: float | None,
) -> Row:
    """Return the row of an engine. calls: open ones of all gateways. pace: output tokens per
    second.
    """
    known = load or EngineLoad()
    return {
        "row": name,
        "state": state,
        "residents": None if load is None else len(known.residents),
        "held": None if load is None else len(known.ahead),
        "blocks": known.blocks or None,
        "free": round((1 - known.usage) * known.blocks) if known.blocks else None,
        "batch": None if load is None else known.running,
        "slots": slots or None,
        "waiting": None if load is None else known.waiting,
        "pace": None if pace is None else round(pace),
        "calls": calls,
    }


class Query(NamedTuple):
    """What a viewer looks at. tenant: None for all. text: a part of a session, tenant, state,
    model or replica. sort: one of SORTS, with a minus for the largest first.
    """

    tenant: str | None = None
    text: str = ""
    sort: str = "state"
    offset: int = 0
    limit: int = PAGE


_SEARCHED: Final = ("session", "tenant", "state", "model", "replica")


def selected(rows: Iterable[tuple[str, Row]], query: Query) -> tuple[list[Row], dict[str, int]]:
    """Return the rows on the page of a query, and the number of matching rows by state. rows: each
    with its tenant.
    """
    text = query.text.casefold()
    found = [
        row
        for tenant, row in rows
        if (query.tenant is None or tenant == query.tenant)
        and (not text or any(text in row[name].casefold() for name in _SEARCHED))
    ]
    counts = dict.fromkeys(STATES, 0)
    for row in found:
        counts[row["state"]] += 1
    name = query.sort.removeprefix("-")
    found.sort(key=_key(name), reverse=query.sort.startswith("-"))
    if name not in ("state", "session", "tenant"):
        # Rows without a value are the last ones in both directions.
        found.sort(key=lambda row: row[name] is None)
    return found[query.offset : query.offset + query.limit], counts


def _key(name: str) -> Callable[[Row], Any]:
    if name == "state":
        ranks = {state: number for number, state in enumerate(STATES)}
        return lambda row: (ranks[row["state"]], row["begun"], row["row"])
    if name == "spent":
        return lambda row: ((row["spent"] or {}).get("share") or 0.0, row["row"])
    return lambda row: (row[name] or (0 if name not in ("session", "tenant") else ""), row["row"])


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
    queued_s = min(total_s - held_s, waited_s)
    if not (receipt.outcome or receipt.first_byte_s):
        # The engine has not said when it began.
        queued_s = total_s - held_s
    left_s = total_s - held_s - queued_s
    first_s = receipt.first_byte_s
    whole = bool(receipt.outcome) and first_s >= total_s - _AT_ONCE_S
    decode_s = 0.0
    if first_s:
        decode_s = left_s if whole else min(left_s, max(0.0, total_s - first_s))
    return {
        "request_id": receipt.request_id,
        "at": receipt.arrived_s,
        "total_s": total_s,
        "held_s": held_s,
        "queued_s": queued_s,
        "prefill_s": left_s - decode_s,
        "decode_s": decode_s,
        "streamed": bool(first_s) and not whole,
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
    whole_s = max(line["to"] - line["from"], 1e-3)
    drawn = []
    for lane in line["lanes"]:
        parts: list[tuple[float, float, str, Row]] = []
        end_s = None
        for bar in lane["calls"]:
            at_s = bar["at"]
            if end_s is not None and at_s > end_s:
                parts.append((end_s, at_s - end_s, "gap", bar))
            for part in PARTS:
                if bar[f"{part}_s"] > 0:
                    parts.append((at_s, bar[f"{part}_s"], part, bar))
                    at_s += bar[f"{part}_s"]
            end_s = max(end_s or 0.0, bar["at"] + bar["total_s"])
        scale = width / whole_s
        drawn.append([((at - line["from"]) * scale, s * scale, p, b) for at, s, p, b in parts])
    return drawn


def short(count: float | None) -> str:
    """Return a count for people: 950, 12k, 3.4M."""
    if count is None:
        return "-"
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if count >= limit:
            size = 1e3 if unit == "k" else 1e6
            return f"{count / size:.0f}{unit}" if unit == "k" else f"{count / size:.1f}{unit}"
    return f"{count:.0f}"


def percent(share: float | None) -> str:
    """Return a share for people."""
    return "-" if share is None else f"{100 * share:.0f}%"


def seconds(amount: float | None) -> str:
    """Return a duration for people: 0.4 s, 12 s, 3 m 20 s, 2 h 5 m."""
    if amount is None:
        return "-"
    if amount < 9.95:
        return f"{amount:.1f} s"
    whole = int(amount + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} m"


def about(row: Row) -> str:
    """Return the state of a program in words, without its duration."""
    if row["state"] == HELD and row["ahead"]:
        ahead = "1 program" if row["ahead"] == 1 else f"{row['ahead']} programs"
        names = f": {row['behind'][0]}" if row["behind"] else ""
        names += ", ..." if names and row["ahead"] > 1 else ""
        return f"held for memory behind {ahead}{names}"
    if row["state"] == GAP:
        return "in a tool gap"
    return f"{row['state']} ({row['open']} calls)" if row["open"] > 1 else str(row["state"])
