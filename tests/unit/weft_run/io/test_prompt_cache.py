"""The prompt cache: answers of repeatable calls for later runs."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from weft_run.io.caller import Answer
from weft_run.io.errors import JobError
from weft_run.io.prompt_cache import CachingCaller, PromptCache
from weft_run.language.requests import LlmRequest
from weft_run.plan.commands import Usage, Work


def kept(path: Path, *keys: str, most_bytes: int = 1 << 20) -> None:
    cache = PromptCache(path, most_bytes)
    for key in keys:
        cache.keep(key, f"answer {key}", None)
    cache.close()


def known(path: Path, *keys: str) -> list[str]:
    cache = PromptCache(path)
    found = [key for key in keys if cache.find(key) is not None]
    cache.close()
    return found


def test_answers_survive_the_run(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    cache = PromptCache(path)
    assert cache.find("a") is None
    cache.keep("a", "text", None)
    cache.keep("b", "", {"choices": []})
    cache.keep("a", "another", None)
    cache.close()
    cache = PromptCache(path)
    assert cache.find("a") == ("text", None)
    assert cache.find("b") == ("", {"choices": []})
    cache.close()
    # Others cannot read the answers.
    assert path.stat().st_mode & 0o077 == 0


def test_the_least_recently_used_answers_are_dropped(tmp_path: Path, monkeypatch) -> None:
    path, now_s = tmp_path / "answers", [100.0]
    monkeypatch.setattr("weft_run.io.prompt_cache.time", lambda: now_s[0])
    kept(path, "a", "b")
    now_s[0] = 200.0
    assert known(path, "a") == ["a"]
    now_s[0] = 300.0
    kept(path, "c", most_bytes=45)
    assert known(path, "a", "b", "c") == ["a", "c"]


def test_two_runs_share_a_file(tmp_path: Path) -> None:
    one, other = PromptCache(tmp_path / "answers"), PromptCache(tmp_path / "answers")
    one.keep("a", "text", None)
    assert other.find("a") == ("text", None)
    other.close()
    one.close()


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(JobError, match="text: cannot be used as a prompt cache"):
        PromptCache(tmp_path / "text")
    foreign = sqlite3.connect(tmp_path / "foreign")
    foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    with pytest.raises(JobError, match="foreign: is another SQLite database"):
        PromptCache(tmp_path / "foreign")
    with pytest.raises(JobError, match="missing"):
        PromptCache(tmp_path / "missing" / "answers")


def test_a_fault_of_the_file_ends_the_cache_and_not_the_run(tmp_path: Path, caplog) -> None:
    cache = PromptCache(tmp_path / "answers")
    other = sqlite3.connect(tmp_path / "answers")
    other.execute("DROP TABLE answers")
    other.close()
    with caplog.at_level(logging.WARNING):
        assert cache.find("a") is None
        cache.keep("a", "text", None)
        cache.close()
    assert len(caplog.records) == 1
    assert "the run continues without the prompt cache" in caplog.text


def together(path: Path, runs: int) -> list[str]:
    """Open a file in threads at once, add an answer in each, and return the errors."""
    start, errors = threading.Barrier(runs), []

    def work(number: int) -> None:
        start.wait()
        try:
            kept(path, str(number))
        except JobError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_runs_may_make_one_file_at_the_same_time(tmp_path: Path) -> None:
    for number in range(10):
        assert together(tmp_path / f"{number}", 8) == []
        assert len(known(tmp_path / f"{number}", *"01234567")) == 8


def test_a_run_waits_for_one_that_makes_the_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "answers"
    kept(path, "a")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode=DELETE")
    other.execute("BEGIN IMMEDIATE")
    # The other run ends its transaction while this one waits.
    monkeypatch.setattr("weft_run.io.prompt_cache.sleep", lambda seconds: other.execute("ROLLBACK"))
    assert known(path, "a") == ["a"]
    assert not other.in_transaction
    other.close()


def test_a_prompt_cache_is_opened_without_its_write_lock(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    kept(path, "a")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    cache = PromptCache(path)
    assert cache.find("a") == ("answer a", None)
    other.execute("ROLLBACK")
    other.close()
    cache.close()


@pytest.mark.parametrize(
    "value", ["not json", b"\xff", "[1,2,3]", "[5,null]", '["text",5]', '{"a":1}', 5, None]
)
def test_a_damaged_answer_ends_the_cache_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    path = tmp_path / "answers"
    kept(path)
    other = sqlite3.connect(path)
    # Only damage leaves an entry without a value.
    other.execute("DROP TABLE answers")
    other.execute("CREATE TABLE answers (key TEXT PRIMARY KEY, value BLOB, used_s INTEGER)")
    other.execute("INSERT INTO answers VALUES ('a', ?, 0)", (value,))
    other.commit()
    other.close()
    # A run that does not read the answer can end, too.
    kept(path, "b")
    cache = PromptCache(path)
    assert cache.find("a") is None
    assert cache.find("b") is None
    cache.close()
    assert len(caplog.records) == 1
    assert "the run continues without the prompt cache" in caplog.text


def test_a_file_that_was_cut_ends_no_run(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    keys = [f"{number:064}" for number in range(400)]
    kept(path, *keys)
    whole = path.read_bytes()
    for size in range(0, len(whole), 2048):
        path.write_bytes(whole[:size])
        with suppress(JobError):
            known(path, *keys)


class _Counting:
    def __init__(self) -> None:
        self.made: list[str] = []

    async def call(self, work, refused) -> Answer:  # type: ignore[no-untyped-def]
        self.made.append(work.key)
        return Answer(f"answer {work.key}", Usage(10, 0, 5))

    async def aclose(self) -> None:
        pass


@pytest.mark.anyio
async def test_only_shared_calls_are_kept(tmp_path: Path) -> None:
    for expected in (["a", "b", "b"], ["b", "b"]):
        made = _Counting()
        caller = CachingCaller(made, PromptCache(tmp_path / "answers"))
        for key, shared in (("a", True), ("a", True), ("b", False), ("b", False)):
            work = Work(0, 0, "op", key, shared, 1, True, LlmRequest((("user", "q"),), "m"))
            before = len(made.made)
            answer = await caller.call(work, lambda: None)
            assert answer.text == f"answer {key}"
            # An answer of the cache has no tokens.
            assert answer.made == bool(answer.usage.total) == (len(made.made) > before)
        await caller.aclose()
        assert made.made == expected
