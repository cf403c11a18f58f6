"""Real, unmodified coding agents from npm, set up as their guides say, without internet access.

They are installed once, into the checkout's `.weft` folder. If the installation fails, the test is
skipped with the reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import guides
from support.stack import ROOT
from support.terminal import Terminal
from support.waiting import RUN_S

KEY = guides.KEY
# No process listens on this port: an agent's requests to other machines fail at once.
_NOWHERE = "http://127.0.0.1:9"


class NotInstalled(Exception):
    """npm does not install the packages. Its text is the reason."""


def install(*packages: str) -> Path:
    """Return the folder with these npm packages. Skip the test if they cannot be installed."""
    try:
        return installed(*packages)
    except NotInstalled as error:
        pytest.skip(f"not run: {error}")


def installed(*packages: str) -> Path:
    """Return the folder with these npm packages, given as `name@version`.

    Raises NotInstalled.
    """
    name = "-".join(package.replace("/", "_").replace("@", "") for package in packages)
    folder = ROOT / ".weft" / "agents" / name
    if (folder / "installed").is_file():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm is not installed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}')
    try:
        done = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--fetch-retries=1", *packages],
            cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotInstalled("npm did not install the agent within 10 minutes") from None
    if done.returncode:
        raise NotInstalled(f"npm registry unreachable, or refuses {name}: {done.stderr[-300:]}")
    (folder / "installed").touch()
    return folder


@dataclass(frozen=True)
class Ran:
    """Result of an agent's run. output: standard output and standard error."""

    status: int
    output: str


@dataclass(frozen=True)
class Agent:
    """An agent that is set up.

    program: its command. home: its home directory. folder: where it works. variables: further
    environment variables. replies: for texts of its first start in a terminal, the keys that a
    user presses. sign_in: a text of the screen that asks the user to sign in.
    """

    program: Path
    home: Path
    folder: Path
    variables: dict[str, str]
    replies: tuple[tuple[str, str], ...] = ()
    sign_in: str = ""

    def run(self, *arguments: str, wait_s: float = RUN_S) -> Ran:
        """Run the agent without a terminal, and end all its processes."""
        process = subprocess.Popen(
            [str(self.program), *arguments],
            cwd=self.folder,
            env=self._environment("dumb"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=wait_s)
        finally:
            # Kill the whole group, because some helper processes outlive their agent.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return Ran(process.returncode, output)

    def terminal(self, *arguments: str) -> Terminal:
        """Run the agent in a terminal: `with agent.terminal(...) as terminal`."""
        return Terminal(
            [str(self.program), *arguments],
            self.folder,
            self._environment("xterm-256color"),
            self.replies,
        )

    def _environment(self, term: str) -> dict[str, str]:
        self.home.mkdir(exist_ok=True)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TERM": term,
            "HTTPS_PROXY": _NOWHERE,
            "HTTP_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            **self.variables,
        }


def codex(
    url: str, home: Path, folder: Path, *, newest: bool = False, readme: bool = False
) -> Agent:
    """Set Codex up. readme: as the README says, not as the guide says."""
    settings, key = guides.blocks("codex", url)
    settings = guides.row("Codex", url) if readme else settings
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    # A daemon would outlive the test.
    quiet = "[features]\ndaemon_auto_start = false\n[analytics]\nenabled = false\n"
    start = "check_for_update_on_startup = false\n"
    (home / ".codex" / "config.toml").write_text(f"{start}{settings}\n{quiet}")
    return Agent(
        _program("codex", "codex", newest),
        home,
        folder,
        guides.variables(key),
        replies=(("Doyoutrustthecontents", "\r"),),
        sign_in="SigninwithChatGPT",
    )


def claude_code(
    url: str,
    home: Path,
    folder: Path,
    *,
    output: int = 4096,
    newest: bool = False,
    readme: bool = False,
) -> Agent:
    """Set Claude Code up. output: most tokens of an answer. readme: as for `codex`."""
    settings = guides.row("Claude Code", url) if readme else guides.blocks("claude-code", url)[0]
    settings = settings.replace("4096", str(output))
    return Agent(
        _program("claude-code", "claude", newest),
        home,
        folder,
        {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", **guides.variables(settings)},
        replies=(
            ("Choosethetextstyle", "\r"),
            ("PressEntertocontinue", "\r"),
            # The answer that is chosen already is to leave.
            ("Yes,Itrustthisfolder", "\x1b[B\r"),
        ),
        sign_in="Selectloginmethod",
    )


def opencode(
    url: str,
    home: Path,
    folder: Path,
    *,
    output: int = 4096,
    newest: bool = False,
    readme: bool = False,
) -> Agent:
    """Set opencode up. output: most tokens of an answer. readme: as for `codex`."""
    settings = guides.row("opencode", url) if readme else guides.blocks("opencode", url)[0]
    settings = settings.replace("4096", str(output))
    (folder / "opencode.json").write_text(settings)
    disabled = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return Agent(
        _program("opencode", "opencode", newest),
        home,
        folder,
        {f"OPENCODE_DISABLE_{name}": "1" for name in disabled},
    )


def packages(guide: str, newest: bool = False) -> tuple[str, ...]:
    """Return the packages of a guide, in the versions that it names or the newest ones."""
    tried = guides.packages(guide)
    return tuple(f"{p.rpartition('@')[0]}@latest" for p in tried) if newest else tried


def _program(guide: str, command: str, newest: bool) -> Path:
    folder = (installed if newest else install)(*packages(guide, newest))
    return folder / "node_modules" / ".bin" / command
