"""A program in a pseudo-terminal, with what it shows as text."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_ROWS, _COLUMNS = 50, 150
# Requests of the program and the answers of a terminal: the cursor's place, and what it is.
_ANSWERS = ((b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?62c"))
_SEQUENCES = re.compile(
    r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|[P_^][^\x1b]*\x1b\\|\[[^@-~]*[@-~]|.)"
)
# Pause between a screen and the keys of a user: programs drop keys that come while they draw.
_KEYS_S = 0.5


class Terminal:
    """A program that is started at once, and ended with its processes by `with`.

    replies: pairs of a text without blanks and keys. When the text appears for the first time, the
    keys are pressed.
    """

    def __init__(
        self,
        command: list[str],
        folder: Path,
        environment: dict[str, str],
        replies: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._raw = b""
        self._replies = list(replies)
        self.process, self._master = pty.fork()
        if self.process == 0:  # pragma: no cover
            os.chdir(folder)
            os.execvpe(command[0], command, environment)
        size = struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The program leads its own session: end the whole group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self._reader.join()
        os.close(self._master)

    @property
    def text(self) -> str:
        """All that was shown so far, without blanks and control sequences."""
        return re.sub(r"\s", "", _SEQUENCES.sub("", self._raw.decode(errors="replace")))

    def press(self, keys: str) -> None:
        """Press keys: texts, Enter (`\\r`) and arrows, one after another."""
        for key in re.findall(r"\x1b\[.|\r|[^\x1b\r]+", keys):
            time.sleep(_KEYS_S)
            os.write(self._master, key.encode())

    def until(self, condition: Callable[[], bool], wait_s: float, refused: str = "") -> None:
        """Wait for a condition while the replies are given.

        Raises AssertionError after `wait_s` seconds, or when the program shows `refused`, a text
        without blanks.
        """
        deadline = time.monotonic() + wait_s
        while not condition():
            text = self.text
            assert not refused or refused not in text, f"the program shows {refused}"
            assert time.monotonic() < deadline, f"the end of what it shows: {text[-2000:]}"
            for reply in self._replies:
                if reply[0] in text:
                    self._replies.remove(reply)
                    self.press(reply[1])
                    break
            time.sleep(0.1)

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # The program has ended.
                return
            if not piece:
                return
            self._raw += piece
            for asked, answer in _ANSWERS:
                if asked in piece:
                    os.write(self._master, answer)
