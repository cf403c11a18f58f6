"""A real Chromium for tests of pages, over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.waiting import DEADLINE_S, RUN_S
from websockets.asyncio.client import ClientConnection, connect


def chromium() -> str | None:
    """Return the path of Chromium. CI installs it on Debian, where it is the package `chromium`."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next((found for name in names if (found := shutil.which(name))), None)
    if found or not (os.environ.get("CI") and shutil.which("apt-get")) or os.geteuid():
        return found
    for command in ("update", "install -y --no-install-recommends chromium"):
        subprocess.run(["apt-get", "-q", *command.split()], timeout=RUN_S, check=False)
    return shutil.which("chromium")


class Tab:
    """A page of one visitor, who shares no cookies with others. complaints: errors and warnings of
    the console, and failed requests.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.complaints: list[str] = []

    async def do(self, method: str, **values: Any) -> dict[str, Any]:
        return await self._browser.do(method, self._session, **values)

    async def open(self, url: str) -> None:
        await self.do("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def run(self, script: str) -> Any:
        """Return the value of an expression."""
        got = await self.do(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true, also over a reload, and return its value."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    if value := await self.run(script):
                        return value
                except AssertionError:
                    pass
                await asyncio.sleep(0.05)

    async def fill(self, selector: str, text: str) -> None:
        await self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.do("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        text = "\r" if key == "Enter" else ""
        await self.do("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, text=text)
        await self.do("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    async def shape(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.do("Emulation.setEmulatedMedia", features=scheme)

    async def picture(self) -> bytes:
        got = await self.do("Page.captureScreenshot", format="png")
        return base64.b64decode(got["data"])


class Browser:
    """One Chromium process."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._count = 0

    async def do(self, method: str, session: str = "", **values: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": values}
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        async with asyncio.timeout(DEADLINE_S):
            got = await answer
        assert "error" not in got, (method, got["error"])
        return got["result"]

    async def visitor(self) -> Tab:
        """Return the page of a new visitor."""
        context = (await self.do("Target.createBrowserContext"))["browserContextId"]
        target = await self.do("Target.createTarget", url="about:blank", browserContextId=context)
        got = await self.do("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = self._tabs[got["sessionId"]] = Tab(self, got["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Audits"):
            await tab.do(f"{domain}.enable")
        return tab

    async def listen(self) -> None:
        async for raw in self._socket:
            message = json.loads(raw)
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
                continue
            tab, about = self._tabs.get(message.get("sessionId", "")), message["params"]
            if tab is None:
                continue
            match message["method"]:
                case "Runtime.exceptionThrown":
                    tab.complaints.append(json.dumps(about["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning"):
                    tab.complaints.append(json.dumps(about["args"]))
                case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                    tab.complaints.append(about["entry"]["text"])
                case "Audits.issueAdded" if "SecurityPolicy" in about["issue"]["code"]:
                    tab.complaints.append(json.dumps(about["issue"]))


@asynccontextmanager
async def browser(path: str, folder: Path) -> AsyncIterator[Browser]:
    """Run Chromium with an empty profile in this folder."""
    process = await asyncio.create_subprocess_exec(
        path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        async with asyncio.timeout(2 * DEADLINE_S):
            while not (line := (await process.stderr.readline()).decode()).startswith("DevTools"):
                assert process.returncode is None, "Chromium has ended"
        drain = asyncio.create_task(process.stderr.read())
        url = line.rpartition(" ")[2].strip()
        async with connect(url, max_size=None, ping_interval=None, proxy=None) as socket:
            found = Browser(socket)
            listening = asyncio.create_task(found.listen())
            yield found
            listening.cancel()
        drain.cancel()
    finally:
        process.terminate()
        await process.wait()
