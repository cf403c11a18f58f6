"""`weft run` as a process, in front of a real gateway: results, exit codes, signals and crashes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from random import Random
from typing import Any

import pytest
from support.runs import ROWS, WINDOW, Answers, Runs
from weft_bench.rows.plays import Servers, Task, langgraph, weft_run
from weft_bench.rows.workload import workflow
from weft_run import examples as workflows

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_killed_runs_resume_with_the_same_output(engine, weft, tmp_path):
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        assert (await runs.run("whole.jsonl"))[0] == 0
        whole, answers.count = answers.count, 0
        assert whole > 3 * ROWS

        process = await runs.start("killed.jsonl")
        answers.after = (whole // 2, process.kill)
        await process.wait()
        made = answers.count
        assert made < whole
        assert not (tmp_path / "killed.jsonl").exists()
        answers.count, answers.after = 0, None

        status, text = await runs.run("killed.jsonl")
        assert (status, "--resume" in text) == (2, True)
        status, text = await runs.run("killed.jsonl", "--resume", "--analyze")
        assert status == 0, text
        assert "digest" not in text
        assert (tmp_path / "killed.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
        assert made + answers.count <= whole + WINDOW
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"wf.yaml", "in.jsonl", "whole.jsonl", "killed.jsonl"}


async def test_ctrl_c_stops_cleanly_and_the_run_resumes(engine, weft, tmp_path, until):
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        process = await runs.start("out.jsonl")
        answers.after = (40, answers.hold.clear)
        await until(lambda: answers.count >= 40 and gateway.in_flight() == WINDOW, "calls run")
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
        assert process.returncode == 130, errors
        assert b"--resume" in errors
        await until(lambda: gateway.in_flight() == 0, "all calls are aborted")
        answers.hold.set()
        assert (await runs.run("out.jsonl", "--resume"))[0] == 0
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == ROWS


async def test_failed_rows_have_errors_and_others_have_results(engine, weft, tmp_path):
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        runs.rows([{"docs": ["poison"], "question": "q"}, {"docs": ["d"], "question": "q"}])
        status, text = await runs.run("out.jsonl")
        assert status == 1, text
        rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        error = rows[0]["error"]
        assert (error["op"], error["code"], error["attempts"]) == ("facts[0]", "http_400", 1)
        assert "poison is not allowed" in error["message"]
        assert rows[1]["error"] is None
        assert rows[1]["vote"]


LOOP = """
weft: 1
name: repair
model: tiny
inputs: {question: str, wanted: int}
ops:
  attempt:
    loop: {max: 2, until: "{{ round == wanted }}"UNMET}
    body: {draft: {llm: {user: "{{ question }} {{ round }}", max_tokens: 4}}}
  other: {format: "{{ question }}"}
outputs: {draft: attempt, other: other}
"""


async def test_loops_that_end_without_their_condition_are_no_success(engine, weft, tmp_path):
    async with engine(script=Answers()) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        rows = [{"question": f"q{n}", "wanted": 2 - n % 2} for n in range(4)]
        rows[3]["wanted"] = 9
        for unmet, status, counted in (
            ("", 4, "0 failed, 1 unmet"),
            (", unmet: fail", 1, "1 failed, "),
        ):
            (tmp_path / "wf.yaml").write_text(LOOP.replace("UNMET", unmet))
            runs.rows(rows[:3])
            assert (await runs.run("out.jsonl"))[0] == 0
            runs.rows(rows)
            found = await runs.run("out.jsonl", "--max-errors", "9")
            assert (found[0], counted in found[1]) == (status, True), found
            lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
            assert [line["error"] for line in lines[:3]] == [None] * 3
            error = lines[3]["error"]
            assert (error["op"], error["code"]) == ("attempt", "unmet")
            assert lines[3]["other"] == "q3"
            assert bool(lines[3]["draft"]) == (not unmet)


async def test_unmet_rows_are_counted_after_a_resume(engine, weft, tmp_path):
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        (tmp_path / "wf.yaml").write_text(LOOP.replace("UNMET", ""))
        runs.rows([{"question": f"q{n}", "wanted": 9} for n in range(ROWS)])
        process = await runs.start("out.jsonl")
        answers.after = (ROWS, process.kill)
        await process.wait()
        answers.after = None
        status, text = await runs.run("out.jsonl", "--resume")
        assert (status, f"{ROWS} rows, 0 failed, {ROWS} unmet" in text) == (4, True), text


async def test_budgets_stop_a_run_that_can_be_resumed(engine, weft, tmp_path):
    async with engine(script=Answers()) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        status, text = await runs.run("out.jsonl", "--budget-tokens", "500")
        assert (status, "the token budget is spent" in text) == (3, True)
        status, text = await runs.run("out.jsonl", "--resume", "--budget-tokens", "100000")
        assert status == 0, text
        runs.rows([{"docs": ["poison"], "question": "q"}] * 9)
        status, text = await runs.run("out.jsonl", "--max-errors", "3")
        assert (status, "too many rows have failed" in text) == (3, True)


async def test_long_calls_use_all_replicas(engine, weft, tmp_path):
    async with (
        engine(script=Answers()) as a,
        engine(script=Answers()) as b,
        weft(a, b, balancer="locality") as gateway,
    ):
        runs = Runs(tmp_path, gateway.url)
        text = "words and more " * 1200
        runs.rows([{"docs": [], "question": f"q{n} {text}"} for n in range(ROWS)])
        one = "{llm: {user: '{{ question }}', max_tokens: 8}}"
        (tmp_path / "wf.yaml").write_text(
            "{weft: 1, model: tiny, inputs: {question: str}, "
            f"ops: {{a: {one}}}, outputs: {{a: a}}}}"
        )
        status, errors = await runs.run("out.jsonl")
        assert status == 0, errors
        assert min(len(a.requests), len(b.requests)) >= ROWS // 4


def asked(stub: Any) -> set[int]:
    """Return the numbers of the contexts that an engine has been asked about."""
    texts = [str(request.json["messages"]) for request in stub.requests]
    return {int(one) for text in texts for one in re.findall(r"context-(\d+)", text)}


GROUPED = """
weft: 1
model: tiny
inputs: {context: str, question: str}
ops:
  one: {llm: {system: You are the first., user: "{{ context }} {{ question }}", max_tokens: 8}}
  two: {llm: {system: You are the second., user: "{{ context }} {{ question }}", max_tokens: 8}}
  end: {llm: {user: "{{ one }} {{ two }}", max_tokens: 8}}
outputs: {end: end}
"""


async def test_rows_that_begin_alike_run_on_one_replica(engine, weft, tmp_path):
    async with (
        engine(script=Answers()) as a,
        engine(script=Answers()) as b,
        weft(a, b, balancer="locality") as gateway,
    ):
        runs = Runs(tmp_path, gateway.url)
        contexts = [n for n in range(ROWS // 3) for _ in range(3)]
        Random(3).shuffle(contexts)
        rows = [{"context": f"context-{n}", "question": f"q{i}"} for i, n in enumerate(contexts)]
        runs.rows(rows)
        (tmp_path / "wf.yaml").write_text(GROUPED)
        status, errors = await runs.run("out.jsonl", "--in-flight", "40")
        assert status == 0, errors
        # An idle replica takes calls from a busy one at the end.
        assert len(asked(a) & asked(b)) <= 4
        assert min(len(asked(a)), len(asked(b))) >= 5


async def test_all_systems_of_the_bench_have_the_same_answers(engine, weft, tmp_path):
    async with engine(script=Answers()) as stub, weft(stub) as gateway:
        servers = Servers(gateway.url, (stub.url,), "tiny")
        rows = [{"context": f"c{n // 3}", "question": f"q{n}"} for n in range(9)]
        task = Task(workflow("tiny", 8), 8, rows)
        systems = (weft_run, langgraph(direct=False), langgraph(direct=True))
        found = [(await asyncio.to_thread(one, servers, task, tmp_path))[1] for one in systems]
        assert all(answers == found[0] for answers in found)
        assert len(set(found[0])) == 9
        assert len(stub.requests) == len(systems) * 9 * 8


async def test_a_run_outlives_one_of_its_replicas(engine, weft, tmp_path, until):
    answers, blocked = Answers(), Answers()
    soon = {"health_interval_s": 0.05, "lost_after_s": 0.2}
    async with (
        engine(script=answers) as a,
        engine(script=blocked) as b,
        weft(a, b, balancer="locality", **soon) as gateway,
    ):
        runs = Runs(tmp_path, gateway.url)
        assert (await runs.run("whole.jsonl"))[0] == 0
        process = await runs.start("out.jsonl")
        at = blocked.count
        blocked.after = (at + 30, blocked.hold.clear)
        # Calls are in the replica when it disappears.
        await until(lambda: blocked.count >= at + 30 + 2, "the replica is busy")
        b.refuse()
        _, errors = await process.communicate()
        assert process.returncode == 0, errors
        blocked.hold.set()
        found = [json.loads(line) for line in (tmp_path / "out.jsonl").open()]
        whole = [json.loads(line) for line in (tmp_path / "whole.jsonl").open()]
        assert found == whole


async def test_a_limit_of_the_tenant_slows_the_run_and_fails_no_row(engine, weft, tmp_path):
    answers = Answers()

    async def slow(wire: Any, request: Any) -> None:
        await asyncio.sleep(0.4)
        await answers(wire, request)

    async with (
        engine(script=slow) as stub,
        weft(stub, calls_in_flight=1) as gateway,
    ):
        runs = Runs(tmp_path, gateway.url)
        runs.rows([{"docs": [], "question": f"q{n}"} for n in range(10)])
        one = "{llm: {user: '{{ question }}', max_tokens: 8}}"
        (tmp_path / "wf.yaml").write_text(
            "{weft: 1, model: tiny, inputs: {question: str}, "
            f"ops: {{a: {one}}}, outputs: {{a: a}}}}"
        )
        status, text = await runs.run("out.jsonl")
        assert status == 0, text


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ('{"docs": []}\n{"docs"\n', (), "in.jsonl:2: not valid JSON"),
        ('{"docs": [], "question": 1}\n', (), "in.jsonl:1: input 'question' must be of type str"),
        ("", ("--connection", "db=nowhere"), "--connection db=nowhere: the file does not exist"),
        (
            "",
            ("--connection", "db=in.jsonl") * 2,
            "--connection db=in.jsonl: the name 'db' is given",
        ),
        ("", ("--resume",), "no journal to resume"),
        ("", ("--allow-host", "http://a"), "--allow-host 'http://a' must be HOST or HOST:PORT"),
        ("", ("--allow-host", "a:99999"), "a port must be a number from 1 to 65535"),
    ],
)
async def test_bad_input_is_an_error_before_any_call(tmp_path, rows, options, message):
    runs = Runs(tmp_path, "http://127.0.0.1:9")
    (tmp_path / "in.jsonl").write_text(rows)
    status, text = await runs.run("out.jsonl", *options)
    assert status == 2
    assert message in text
    assert {path.name for path in tmp_path.iterdir()} == {"wf.yaml", "in.jsonl"}


async def test_tools_out_of_reach_are_errors_before_any_row(tmp_path):
    runs = Runs(tmp_path, "http://127.0.0.1:9")
    runs.rows([{"q": "a"}])
    (tmp_path / "wf.yaml").write_text(
        "weft: 1\ninputs: {q: str}\nops:\n  a: {http: 'http://b.test:81/{{ q }}'}\n"
        "  b:\n    sql: {query: SELECT 1, connection: defualt}\noutputs: {a: a, b: b}\n"
    )
    (tmp_path / "shop.db").touch()
    shop = ("--connection", "default=shop.db")
    status, text = await runs.run("out.jsonl", "--allow-host", "B.test:80", *shop)
    assert status == 2, text
    assert text.splitlines() == [
        "weft run: wf.yaml:4: operator 'a': b.test:81 is not allowed; did you mean b.test:80?",
        "weft run: wf.yaml:5: operator 'b': no connection is named 'defualt'; "
        "did you mean default?",
    ]
    assert "wf.yaml:4: operator 'a': no host is allowed" in (await runs.run("out.jsonl"))[1]
    assert not (tmp_path / "out.jsonl").exists()


async def test_a_gateway_that_does_not_answer_is_an_error(tmp_path):
    runs = Runs(tmp_path, "http://127.0.0.1:9")
    status, text = await runs.run("out.jsonl")
    assert status == 2, text


async def test_a_model_without_a_replica_is_an_error_before_any_call(engine, weft, tmp_path):
    async with engine(script=Answers()) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        workflow = tmp_path / "wf.yaml"
        workflow.write_text(workflow.read_text().replace("model: tiny", "model: tinyy"))
        runs.rows([{"docs": ["d"], "question": "q"}])
        status, text = await runs.run("out.jsonl")
        assert status == 2, text
        assert text.startswith("weft run: wf.yaml:4: model: ")
        assert "does not serve the model 'tinyy'; did you mean tiny?" in text
        assert not stub.requests
        assert {path.name for path in tmp_path.iterdir()} == {"wf.yaml", "in.jsonl"}


async def test_a_workflow_without_calls_needs_no_gateway(tmp_path):
    runs = Runs(tmp_path, "http://127.0.0.1:9")
    (tmp_path / "wf.yaml").write_text("{weft: 1, ops: {a: {format: x}}, outputs: {a: a}}")
    status, text = await runs.run("out.jsonl", "--analyze")
    assert status == 0, text
    assert "operator" in text


async def write_sql(wire: Any, request: Any) -> None:
    """Answer with a wrong query, and with a right one after its error."""
    prompt = request.json["messages"][-1]["content"]
    assert "CREATE TABLE purchase" in prompt
    right = "no such column: price" in prompt
    query = f"SELECT sum({'cents' if right else 'price'}) AS total FROM purchase"
    choice = {"index": 0, "message": {"role": "assistant", "content": f"```sql\n{query}\n```"}}
    await wire.plain({"object": "chat.completion", "choices": [choice], "usage": {}})


async def test_a_wrong_query_is_repaired(engine, weft, tmp_path):
    workflows.copy(tmp_path)
    async with engine(script=write_sql) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        (tmp_path / "text_to_sql.yaml").replace(tmp_path / "wf.yaml")
        (tmp_path / "text_to_sql.jsonl").replace(tmp_path / "in.jsonl")
        status, text = await runs.run("out.jsonl", "--connection", "default=shop.db")
        assert status == 0, text
        row = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
        assert row["attempt"]["result"] == {"value": [{"total": 43100}], "error": None}
        # Each row has two calls: the schema is read once, and greedy calls differ by question.
        assert len(stub.requests) == 6


POST = """
import pathlib, time

def post(text):
    with open("effects", "a") as file:
        file.write(text + "\\n")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return text
"""


async def test_a_killed_tool_with_an_effect_never_runs_twice(tmp_path, until):
    runs = Runs(tmp_path, "http://127.0.0.1:9")
    (tmp_path / "my_ops.py").write_text(POST)
    python = "{python: {function: 'my_ops:post', args: ['{{ question }}']}}"
    (tmp_path / "wf.yaml").write_text(
        f"{{weft: 1, inputs: {{question: str}}, ops: {{p: {python}}}, outputs: {{p: p}}}}"
    )
    process = await runs.start("out.jsonl")
    effects = tmp_path / "effects"
    await until(lambda: effects.exists() and len(effects.read_text().splitlines()) >= 8, "tools")
    process.kill()
    await process.wait()
    killed = set(effects.read_text().splitlines())
    (tmp_path / "go").touch()
    (tmp_path / "my_ops.py").write_text(f"{POST}\n# Another comment.\n")
    status, text = await runs.run("out.jsonl", "--resume")
    assert status == 1, text
    assert "my_ops.py has changed; finished rows and calls keep their results" in text
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    unknown = {f"q{row['row']}" for row in rows if row["error"]}
    assert killed <= unknown
    assert {row["error"]["code"] for row in rows if row["error"]} == {"unknown"}
    done = effects.read_text().splitlines()
    assert len(done) == len(set(done))
    assert set(done) | unknown == {f"q{n}" for n in range(ROWS)}
