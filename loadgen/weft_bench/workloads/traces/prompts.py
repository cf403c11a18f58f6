"""Sets of single prompts, as programs of one or a few calls: GSM8K, MT-bench, TAT-QA, Spider.

Answers are as long as the set's own where it has some; else their lengths are drawn around the mean
of chats in Agentix 6.1 (277 tokens), or are short where a figure or a phrase is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from weft_bench.workloads.draws import LongTail
from weft_bench.workloads.schema import TraceCall, TraceProgram
from weft_bench.workloads.synthetic import words

SCHEMAS: Final = "spider_schemas"
_CHAT_ANSWER: Final = LongTail(277, 0.6, 20, 1500)
_PHRASE: Final = LongTail(24, 0.6, 3, 120)
# A person reads the first answer and asks again.
_READING_S: Final = 4.0
_CHARACTERS_A_TOKEN: Final = 4
_TABLE: Final = "Answer the question from this financial report, with a figure or a short phrase."
_QUERY: Final = "Write one SQL query that answers the question. Print the query alone."


def is_gsm8k(record: Mapping[str, Any]) -> bool:
    """Whether a record is a maths problem."""
    return {"question", "answer"} <= record.keys()


def gsm8k(records: Iterable[Mapping[str, Any]]) -> Iterator[TraceProgram]:
    """One call a problem."""
    for number, record in enumerate(records):
        size = len(record["answer"].encode())
        call = TraceCall((_user(record["question"]),), output_bytes=size)
        yield TraceProgram(f"gsm8k-{number}", (call,))


def is_mt_bench(record: Mapping[str, Any]) -> bool:
    """Whether a record is a prompt in turns."""
    return "turns" in record and "question_id" in record


def mt_bench(records: Iterable[Mapping[str, Any]], rng: Random) -> Iterator[TraceProgram]:
    """One call a turn. The set has no answers: what stands between turns is made."""
    for record in records:
        history: tuple[Mapping[str, Any], ...] = ()
        calls = []
        for number, turn in enumerate(record["turns"], 1):
            history += (_user(turn),)
            tokens = _CHAT_ANSWER.whole(rng)
            answer = words(rng, _CHARACTERS_A_TOKEN * tokens)
            gap_s = rng.expovariate(1 / _READING_S) if number < len(record["turns"]) else 0.0
            calls.append(TraceCall(history, output_tokens=tokens, gap_s=gap_s))
            history += ({"role": "assistant", "content": answer},)
        yield TraceProgram(f"mt_bench-{record['question_id']}", tuple(calls))


def is_tatqa(record: Mapping[str, Any]) -> bool:
    """Whether a record is a table with questions."""
    return {"table", "paragraphs", "questions"} <= record.keys()


def tatqa(records: Iterable[Mapping[str, Any]], rng: Random) -> Iterator[TraceProgram]:
    """One program a table: its questions side by side, behind the same table and paragraphs."""
    for number, record in enumerate(records):
        rows = "\n".join(" | ".join(row) for row in record["table"])
        context = "\n\n".join((_TABLE, rows, *record["paragraphs"]))
        head = {"role": "system", "content": context}
        calls = tuple(
            TraceCall((head, _user(question)), output_tokens=_PHRASE.whole(rng), after=())
            for question in record["questions"]
        )
        yield TraceProgram(f"tatqa-{number}", calls)


def is_spider(record: Mapping[str, Any]) -> bool:
    """Whether a record is a question to a database."""
    return {"db_id", "question", "query"} <= record.keys()


def spider(
    records: Iterable[Mapping[str, Any]], schemas: Iterable[Mapping[str, Any]]
) -> Iterator[TraceProgram]:
    """One call a question; all questions to a database begin with its schema. Raises ValueError
    for a database without one."""
    known = {schema["db_id"]: schema_text(schema) for schema in schemas}
    for number, record in enumerate(records):
        if record["db_id"] not in known:
            raise ValueError(f"no schema of the database {record['db_id']} is known")
        head = {"role": "system", "content": f"{_QUERY}\n\n{known[record['db_id']]}"}
        size = len(record["query"].encode())
        call = TraceCall((head, _user(record["question"])), output_bytes=size)
        yield TraceProgram(f"spider-{number}", (call,))


def schema_text(schema: Mapping[str, Any]) -> str:
    """A database's tables, a line each, and which columns refer to which."""
    tables: Sequence[str] = schema["table_names_original"]
    columns: Sequence[tuple[int, str]] = schema["column_names_original"]
    lines = []
    for number, table in enumerate(tables):
        kinds = zip(columns, schema["column_types"], strict=True)
        own = ", ".join(f"{name} {kind}" for (owner, name), kind in kinds if owner == number)
        lines.append(f"{table}({own})")

    def full(column: int) -> str:
        owner, name = columns[column]
        return f"{tables[owner]}.{name}"

    lines += [f"{full(mine)} -> {full(theirs)}" for mine, theirs in schema["foreign_keys"]]
    return "\n".join(lines)


def _user(text: str) -> Mapping[str, Any]:
    return {"role": "user", "content": text}
