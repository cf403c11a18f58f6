"""Sets of single prompts, as programs of one or a few calls: GSM8K, MT-bench, TAT-QA, Spider.

Answers have the length of the set's answers if it has any. Otherwise their lengths are drawn around
the mean of chats in Agentix 6.1 (277 tokens), or are short for figures and phrases.
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
# Time for the user to read the first answer.
_READING_S: Final = 4.0
_CHARACTERS_A_TOKEN: Final = 4
_TABLE: Final = "Answer the question from this financial report, with a figure or a short phrase."
_QUERY: Final = "Write one SQL query that answers the question. Print the query alone."


def gsm8k(records: Iterable[Mapping[str, Any]]) -> Iterator[TraceProgram]:
    """Yield one call per problem."""
    for number, record in enumerate(records):
        size = len(record["answer"].encode())
        call = TraceCall((_user(record["question"]),), output_bytes=size)
        yield TraceProgram(f"gsm8k-{number}", (call,))


def mt_bench(records: Iterable[Mapping[str, Any]], rng: Random) -> Iterator[TraceProgram]:
    """Yield one program per prompt, with one call per turn.

    The set has no answers, so the answers between turns are generated.
    """
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


def tatqa(records: Iterable[Mapping[str, Any]], rng: Random) -> Iterator[TraceProgram]:
    """Yield one program per table. Its questions run in parallel after the same table and text."""
    for number, record in enumerate(records):
        rows = "\n".join(" | ".join(row) for row in record["table"])
        context = "\n\n".join((_TABLE, rows, *record["paragraphs"]))
        head = {"role": "system", "content": context}
        calls = tuple(
            TraceCall((head, _user(question)), output_tokens=_PHRASE.whole(rng), after=())
            for question in record["questions"]
        )
        yield TraceProgram(f"tatqa-{number}", calls)


def spider(
    records: Iterable[Mapping[str, Any]], schemas: Iterable[Mapping[str, Any]]
) -> Iterator[TraceProgram]:
    """Yield one call per question, which begins with the schema of its database.

    Raises ValueError for a database without a schema.
    """
    known = {schema["db_id"]: schema_text(schema) for schema in schemas}
    for number, record in enumerate(records):
        if record["db_id"] not in known:
            raise ValueError(f"unknown schema of database {record['db_id']}")
        head = {"role": "system", "content": f"{_QUERY}\n\n{known[record['db_id']]}"}
        size = len(record["query"].encode())
        call = TraceCall((head, _user(record["question"])), output_bytes=size)
        yield TraceProgram(f"spider-{number}", (call,))


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a database's tables, one per line, and its foreign keys."""
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
