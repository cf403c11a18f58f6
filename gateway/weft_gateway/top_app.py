"""The screen of `weft top`, a client of `/v1/top`. It needs the extra `top`."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime
from time import time
from typing import Any, ClassVar, Final

import httpx
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, RichLog, Static

from weft_gateway.telemetry import view

_COLORS: Final = {
    view.HELD: "red", view.QUEUED: "yellow", view.RUNNING: "green", "prefill": "magenta",
    "decode": "green", "gap": "bright_black", view.GAP: "bright_black", view.ENDED: "bright_black",
}  # fmt: skip
_AGAIN_S: Final = 2.0


def cells(row: view.Row, now_s: float) -> list[Text]:
    """Return the cells of a program. Names are text, never markup."""
    since = view.seconds(max(0.0, now_s - row["since"])) if row["since"] else ""
    texts = [row["session"], view.about(row), since, *(one.text(row) for one in view.COLUMNS)]
    style = _COLORS.get(row["state"], "")
    return [Text(_plain(text), style if at == 1 else "") for at, text in enumerate(texts)]


def story_lines(line: view.Row, width: int) -> list[Text]:
    """Return a timeline as lines: one for each thread, a character for each part of the time."""
    lines = []
    for lane, parts in zip(line["lanes"], view.spans(line, float(width)), strict=True):
        bars = Text(" " * width)
        for at, length, part, _ in parts:
            begin = min(int(at), width - 1)
            end = min(width, max(begin + 1, round(at + length)))
            mark = "-" if part == "gap" else part[0]
            bars = bars[:begin] + Text(mark * (end - begin), _COLORS[part]) + bars[end:]
        lines += [Text(_plain(lane["thread"] or "main"), "bold"), bars]
    return lines


def _plain(text: str) -> str:
    """Return text without characters that would move the cursor or end a line."""
    return "".join(char if char.isprintable() else "?" for char in text)[:256]


class Story(ModalScreen[None]):
    """The timeline of one program."""

    BINDINGS: ClassVar = [("escape,q,enter", "app.pop_screen", "Close")]

    def __init__(self, title: str, line: view.Row) -> None:
        super().__init__()
        self._title, self._line = title, line

    def compose(self) -> ComposeResult:
        """Draw the lines."""
        width = max(20, self.app.size.width - 4)
        title = Text(_plain(self._title), "bold")
        legend = Text("h held  q queued  p prefill  d decode  - tool gap")
        whole = view.seconds(self._line["to"] - self._line["from"])
        lines = [title, legend, Text(f"{whole} in all"), *story_lines(self._line, width)]
        yield VerticalScroll(*(Static(line) for line in lines))
        yield Footer()


class Top(App[None]):
    """The live view. failure: why it ended, "" if the user ended it."""

    TITLE = "weft top"
    CSS = "#engines {height: auto; max-height: 8;} #events {height: 7;} Input {display: none;}"
    BINDINGS: ClassVar = [
        ("q", "quit", "Quit"),
        ("s", "stop", "Stop (twice)"),
        ("r", "raise", "Double budget"),
        ("o", "order", "Sort"),
        ("slash", "filter", "Filter"),
    ]

    def __init__(self, gateway: str, sort: str = "state", text: str = "") -> None:
        super().__init__()
        key = os.environ.get("WEFT_ADMIN_KEY") or os.environ.get("OPENAI_API_KEY", "")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.failure = ""
        self.rows: dict[str, view.Row] = {}
        self._http = httpx.AsyncClient(base_url=gateway, headers=headers, trust_env=False)
        self._sort, self._text = sort, text
        self._order: list[str] = []
        self._asked = ""
        self._reading: Any = None

    def compose(self) -> ComposeResult:
        """Create the parts."""
        yield Static(id="counts")
        yield DataTable(id="engines", cursor_type="none", show_cursor=False)
        yield Input(self._text, placeholder="filter", id="filter")
        yield DataTable(id="programs", cursor_type="row")
        yield RichLog(id="events", max_lines=200)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one("#engines", DataTable).add_columns(*(one.title for one in view.ENGINES))
        titles = (one.title for one in view.COLUMNS)
        self.query_one("#programs", DataTable).add_columns("Session", "State", "For", *titles)
        self.query_one("#programs").focus()
        self._read()
        self.set_interval(1.0, self._draw)

    def apply(self, data: dict[str, Any]) -> None:
        """Take a message of the stream."""
        self.rows.update(data.get("rows", {}))
        self._order = data.get("order", self._order)
        self.rows = {name: self.rows[name] for name in self._order}
        if "counts" in data:
            counts = "  ".join(f"{state} {count}" for state, count in data["counts"].items())
            self.query_one("#counts", Static).update(Text(f"{counts}   sorted by {self._sort}"))
        if "engines" in data:
            table = self.query_one("#engines", DataTable)
            table.clear()
            for row in data["engines"]:
                table.add_row(*(Text(_plain(one.text(row))) for one in view.ENGINES))
        for event in data.get("events", ()):
            at = datetime.fromtimestamp(event["at"]).strftime("%H:%M:%S")
            line = f"{at} {event['what']} {event['session'] or ''} {event['text']}"
            self.query_one("#events", RichLog).write(Text(_plain(line)))
        self._draw()

    def _draw(self) -> None:
        if not self.query("#programs"):
            return
        table, now_s = self.query_one("#programs", DataTable), time()
        at, offset = table.cursor_row, table.scroll_offset
        table.clear()
        for name, row in self.rows.items():
            table.add_row(*cells(row, now_s), key=name)
        table.move_cursor(row=at, scroll=False)
        table.scroll_to(*offset, animate=False)

    def _read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self.run_worker(self._stream(), exclusive=False)

    async def _stream(self) -> None:
        params = {
            "stream": "true", "sort": self._sort, "q": self._text, "limit": str(view.MOST_ROWS),
        }  # fmt: skip
        while True:
            try:
                limits = httpx.Timeout(10.0, read=None)
                async with self._http.stream(
                    "GET", "/v1/top", params=params, timeout=limits
                ) as got:
                    if got.status_code != 200:
                        await got.aread()
                        self.failure = got.json()["error"]["message"]
                        self.exit()
                        return
                    async for line in got.aiter_lines():
                        if line.startswith("data: "):
                            self.apply(json.loads(line[6:]))
            except (httpx.HTTPError, ValueError) as error:
                self.notify(f"The gateway does not answer: {error}", markup=False)
            await asyncio.sleep(_AGAIN_S)

    def _chosen(self) -> str:
        at = self.query_one("#programs", DataTable).cursor_row
        names = list(self.rows)
        return names[at] if 0 <= at < len(names) else ""

    async def _change(self, method: str, row: str, said: str, **more: Any) -> None:
        got = await self._http.request(method, f"/v1/top/{row}", **more)
        said = said if got.is_success else got.json()["error"]["message"]
        self.notify(f"{self.rows[row]['session']}: {said}", markup=False)

    async def action_stop(self) -> None:
        """Stop the program of the cursor, if asked twice."""
        row, asked = self._chosen(), self._asked
        self._asked = "" if row == asked else row
        if row and row == asked:
            await self._change("DELETE", row, "stopped")
        elif row:
            self.notify(f"Press s again to stop {self.rows[row]['session']}.", markup=False)

    async def action_raise(self) -> None:
        """Double the limit that the program of the cursor is nearest to."""
        row = self._chosen()
        spent = self.rows[row]["spent"] if row else None
        if spent:
            name, limit = spent["name"], 2 * spent["limit"]
            change = {"budget": {name: limit}}
            await self._change("PATCH", row, f"{limit:.10g} {name}", json=change)
        elif row:
            self.notify(f"{self.rows[row]['session']} has no budget.", markup=False)

    def action_order(self) -> None:
        """Sort by the next column."""
        names = [name for sort in view.SORTS for name in (sort, f"-{sort}")]
        self._sort = names[(names.index(self._sort) + 1) % len(names)]
        self._read()

    def action_filter(self) -> None:
        """Ask for a filter."""
        box = self.query_one(Input)
        box.display = True
        box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Filter."""
        self._text, event.input.display = event.value, False
        self.query_one("#programs").focus()
        self._read()

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the timeline of a program."""
        got = await self._http.get(f"/v1/top/{event.row_key.value}")
        if got.is_success:
            line = got.json()
            self.push_screen(Story(line["program"]["session"], line))
