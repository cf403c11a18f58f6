"""The channel between scheduler and API server, over real sockets."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest
from support.waiting import DEADLINE_S
from weft_engine.engine_link import Command, EngineLink
from weft_engine.orders import OrderOptions, build_order
from weft_engine.report_server import EngineLinkError, ReportServer
from weft_engine.wire import CallReport

pytest.importorskip("zmq")


def validated(policy, changes):
    options = OrderOptions().changed(changes)
    build_order(policy or "plas", options)
    return options.model_dump()


def scenario(tmp_path: Path, steps) -> None:
    async def main() -> None:
        address = f"ipc://{tmp_path}/channel"
        reports = ReportServer(address)
        channel = EngineLink(
            address,
            lambda: {"policy": "plas", "running": 3},
            validated,
        )
        try:
            with anyio.fail_after(DEADLINE_S):
                while not reports._engines:  # noqa: ASYNC110 - no event signals it
                    await anyio.sleep(0.01)
                await steps(reports, channel)
        finally:
            await anyio.to_thread.run_sync(channel.close)
            await reports.close()

    anyio.run(main)


def test_a_report_reaches_waiters_and_later_requests(tmp_path):
    async def steps(reports, channel):
        report = CallReport("c1", service_s=1.0)
        threading.Timer(0.05, channel.send_report, [report]).start()
        assert await reports.report("c1", 10) == report
        assert await reports.report("c1", 0) == report

    scenario(tmp_path, steps)


def test_a_report_that_does_not_come_is_none(tmp_path):
    async def steps(reports, channel):
        assert await reports.report("never", 0.01) is None
        assert reports._waiters == {}

    scenario(tmp_path, steps)


def test_a_later_report_of_the_same_call_replaces_the_first(tmp_path):
    async def steps(reports, channel):
        channel.send_report(CallReport("c", service_s=1.0))
        channel.send_report(CallReport("c", service_s=2.0))
        channel.send_report(CallReport("end"))
        await reports.report("end", 10)
        assert (await reports.report("c", 0)).service_s == 2.0

    scenario(tmp_path, steps)


def test_a_malformed_report_costs_no_later_one(tmp_path):
    async def steps(reports, channel):
        channel.send_report(CallReport("bad", service_s=float("nan")))
        channel.send_report(CallReport("good", service_s=2.0))
        assert (await reports.report("good", 10)).service_s == 2.0
        assert await reports.report("bad", 0) is None

    scenario(tmp_path, steps)


def test_commands_wait_for_the_next_step_and_questions_do_not(tmp_path):
    async def steps(reports, channel):
        told = {"policy": "plas", "running": 3, "commands_waiting": 0}
        assert await reports.command({"do": "state"}) == [told]
        replies = await reports.command({"policy": "fcfs", "reset_cache": True})
        assert replies == [{"policy": "fcfs", "reset_cache": True}]
        assert channel.take_commands() == [Command("fcfs", True)]
        assert channel.take_commands() == []

    scenario(tmp_path, steps)


def test_an_unknown_policy_is_refused_and_changes_nothing(tmp_path):
    async def steps(reports, channel):
        with pytest.raises(EngineLinkError, match="lottery"):
            await reports.command({"policy": "lottery"})
        assert channel.take_commands() == []
        assert await reports.command({"do": "state"})

    scenario(tmp_path, steps)


def test_without_an_engine_a_command_says_so(tmp_path):
    async def main() -> None:
        reports = ReportServer(f"ipc://{tmp_path}/alone")
        with pytest.raises(EngineLinkError, match="no engine core"):
            await reports.command({"do": "state"})
        await reports.close()

    anyio.run(main)


def test_an_idle_engine_sends_its_state(tmp_path):
    async def main() -> None:
        told = anyio.Event()
        states = []

        def take(engine, state):
            states.append((engine, state))
            told.set()

        address = f"ipc://{tmp_path}/channel"
        reports = ReportServer(address, take)
        channel = EngineLink(address, lambda: {"policy": "plas", "running": 3}, validated)
        try:
            with anyio.fail_after(DEADLINE_S):
                await told.wait()
        finally:
            await anyio.to_thread.run_sync(channel.close)
            await reports.close()
        assert states[0] == (0, {"policy": "plas", "running": 3})

    anyio.run(main)


def test_an_idle_engine_reports_a_switched_order(tmp_path):
    async def steps(reports, channel):
        await reports.command({"policy": "fcfs", "reset_cache": False})
        [state] = await reports.command({"do": "state"})
        assert (state["policy"], state["commands_waiting"]) == ("fcfs", 1)
        channel.take_commands()
        [state] = await reports.command({"do": "state"})
        assert (state["policy"], state["commands_waiting"]) == ("plas", 0)

    scenario(tmp_path, steps)


def test_changed_options_are_checked_and_reported(tmp_path):
    async def steps(reports, channel):
        changes = {"default_budget_s": 2.5, "beta": 0.5}
        [reply] = await reports.command({"options": changes})
        assert (reply["policy"], reply["options"]) == ("plas", changes)
        [state] = await reports.command({"do": "state"})
        assert (state["options"], state["commands_waiting"]) == (changes, 1)
        with pytest.raises(EngineLinkError, match="resident_facto: unknown; did you mean resid"):
            await reports.command({"options": {"resident_facto": 1.0}})
        with pytest.raises(EngineLinkError, match=r"options\.beta: Input should be greater than 0"):
            await reports.command({"options": {"beta": 0.0}})
        assert channel.take_commands() == [Command(options=changes)]
        [state] = await reports.command({"do": "state"})
        assert "options" not in state

    scenario(tmp_path, steps)
