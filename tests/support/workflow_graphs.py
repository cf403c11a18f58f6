"""Random workflows, and answers that depend only on the request."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Any

from support.evaluate import OperatorError, Task
from weft_run.language.graph import (
    Body,
    Branch,
    Case,
    Format,
    Http,
    InputType,
    Llm,
    Loop,
    Message,
    Operator,
    Python,
    Simple,
    Sql,
    Workflow,
    digest,
    operator,
)
from weft_run.language.requests import LlmRequest, Request, SqlRequest
from weft_run.language.templates import Template

COLUMNS = {"q": InputType.STR, "docs": InputType.LIST}


def random_workflow(random: Random) -> Workflow:
    """Return a valid workflow with items, loops, branches, conditions and errors."""
    operators = _operators(random, list(COLUMNS), "o", random.randint(1, 7), 0)
    named = [one.name for one in operators]
    outputs = {f"out{n}": name for n, name in enumerate(random.sample(named, min(3, len(named))))}
    return Workflow("random", "m", COLUMNS, operators, outputs)


def random_rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Return rows, some of which are equal."""
    return [
        {
            "q": f"q{random.randint(0, 3)}",
            "docs": [f"d{random.randint(0, 2)}" for _ in range(random.randint(0, 3))],
        }
        for _ in range(count)
    ]


def answer(request: Request, idempotent: bool, row: int, place: str) -> Any:
    """Return the value of a request. Raises OperatorError for some requests.

    The answers of deterministic requests depend on the request, others on row and place, too.
    """
    is_same = deterministic(request, idempotent)
    text = digest(request) if is_same else f"{digest(request)} {row} {place}"
    drawn = int.from_bytes(sha256(text.encode()).digest()[:8])
    if drawn % 9 == 0:
        raise OperatorError("http_400" if drawn % 2 else "timeout", f"no answer {drawn % 1000}", 2)
    if isinstance(request, LlmRequest):
        return f"a{drawn % 1000}"
    if isinstance(request, SqlRequest):
        return [{"n": drawn % 10 + n} for n in range(drawn % 4)]
    kinds = [f"t{drawn % 100}", drawn % 5, None, [drawn % 7, "x"], {"k": drawn % 3}]
    return kinds[drawn // 16 % len(kinds)]


def executing(row: int) -> Any:
    """Return an `evaluate.Execute` with these answers."""

    def execute(task: Task) -> Any:
        return answer(task.request, task.operator.idempotent, row, task.place)

    return execute


def deterministic(request: Request, idempotent: bool) -> bool:
    if isinstance(request, LlmRequest):
        return request.parameters.get("temperature") == 0
    return not request.write if isinstance(request, SqlRequest) else idempotent


def _operators(
    random: Random, names: list[str], prefix: str, count: int, depth: int
) -> tuple[Operator, ...]:
    known, made = list(names), []
    for number in range(count):
        name = f"{prefix}{number}"
        for_each = None
        if random.random() < 0.4:
            for_each = random.choice(["docs", *[one for one in known if one != "q"]][-4:])
        visible = known + (["item", "index"] if for_each else [])
        made.append(
            operator(
                name,
                _body(random, visible, name, depth),
                for_each=for_each,
                when=_condition(random, visible) if random.random() < 0.2 else None,
                on_error=random.choice(("fail", "fail", "value")),
                idempotent=random.random() < 0.5,
                retries=random.randint(0, 2),
            )
        )
        known.append(name)
    return tuple(made)


def _body(random: Random, names: list[str], name: str, depth: int) -> Body:
    drawn = random.random()
    if drawn < 0.2 and depth < 2:
        inner = [*names, "previous", "round"]
        body = _operators(random, inner, f"{name}_", random.randint(1, 3), depth + 1)
        until = _condition(random, [one.name for one in body] + ["round"])
        return Loop(body, until, random.randint(1, 3))
    if drawn < 0.3:
        cases = [Case(_condition(random, names), _simple(random, names)) for _ in range(2)]
        return Branch((*cases, *([Case(None, _simple(random, names))] * random.randint(0, 1))))
    return _simple(random, names)


def _simple(random: Random, names: list[str]) -> Simple:
    text = _template(random, names)
    drawn = random.random()
    if drawn < 0.45:
        parameters = {"temperature": random.choice((0, 0, 1))}
        return Llm((Message("user", text),), parameters=parameters)
    if drawn < 0.6:
        return Format(text)
    if drawn < 0.8:
        return Python("m:f", (text,), {"n": _template(random, names)})
    if drawn < 0.92:
        return Sql(random.choice("ab"), text, {"x": text}, write=random.random() < 0.2)
    return Http("POST", text, {"h": text}, {"b": text})


def _template(random: Random, names: list[str]) -> Template:
    read = random.sample(names, min(len(names), random.randint(0, 3)))
    source = " ".join(f"{random.choice('xy')} {{{{ {name} }}}}" for name in read)
    # An attribute of a text or number is an error.
    return Template.parse(source + (f" {{{{ {names[-1]}.k }}}}" if random.random() < 0.05 else ""))


def _condition(random: Random, names: list[str]) -> Template:
    name = random.choice(names)
    test = random.choice(("", " is none", "|string|length > 3", " == 2"))
    return Template.parse(f"{{{{ {name}{test} }}}}")
