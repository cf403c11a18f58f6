"""The rows and the prompts of the workflow, the same for all systems.

Helium (section 7.1) runs seven experts with distinct roles over contexts of TAT-QA with six
questions each. The prompts are ours: an expert's prompt begins with its system prompt, then has the
context and the question, so that six calls of each expert share a prefix. In the authors' code
(mlsys-io/helium_demo) the role comes last, and the rows are shuffled.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson

QUESTIONS: Final = 6
_FILE: Final = "prompts/tatqa_dev.jsonl.xz"
_RULES: Final = (
    "You answer questions about a page of a company's annual report, which has a table and some "
    "paragraphs. Use only figures of the page, name the cells and sentences that you use, keep "
    "units and signs, and show each step of a calculation. Say so if the page does not have the "
    "answer."
)
_ROLES: Final[Mapping[str, str]] = {
    "accountant": "You are an accountant. Check how the figures are defined and recognised.",
    "auditor": "You are an auditor. Check whether table and text agree, and look for errors.",
    "analyst": "You are an equity analyst. Compare years, and explain growth and margins.",
    "lawyer": "You are a lawyer. Read conditions, contracts and obligations word by word.",
    "statistician": "You are a statistician. Compute changes, shares and averages exactly.",
    "treasurer": "You are a treasurer. Look at cash, debt, interest and currencies.",
    "sceptic": "You are a sceptic. Assume that the obvious answer is wrong, and find the reason.",
}
EXPERTS: Final[Mapping[str, str]] = {name: f"{role} {_RULES}" for name, role in _ROLES.items()}
EDITOR: Final = (
    "You are an editor. Combine the answers of seven experts into one answer: keep the figures on "
    "which most of them agree, and name disagreements."
)


def expert_prompt(context: str, question: str) -> str:
    """Return the user message of an expert."""
    return f"{context}\n\nQuestion: {question}"


def editor_prompt(question: str, answers: Mapping[str, str]) -> str:
    """Return the user message of the editor. answers: by expert."""
    said = "".join(f"\n\n{name}: {answers[name]}" for name in EXPERTS)
    return f"Question: {question}{said}"


def workflow(model: str, tokens: int) -> str:
    """Return the workflow as YAML (JSON is YAML). tokens: of each answer."""

    def llm(system: str, user: str) -> dict[str, Any]:
        exact = {"max_tokens": tokens, "parameters": {"ignore_eos": True}}
        return {"llm": {"system": system, "user": user, **exact}}

    asked = expert_prompt("{{ context }}", "{{ question }}")
    read = editor_prompt("{{ question }}", {name: f"{{{{ {name} }}}}" for name in EXPERTS})
    ops = {name: llm(system, asked) for name, system in EXPERTS.items()}
    return json.dumps(
        {
            "weft": 1, "name": "mapred", "model": model,
            "inputs": {"context": "str", "question": "str"},
            "ops": {**ops, "answer": llm(EDITOR, read)},
            "outputs": {"answer": "answer"},
        }
    )  # fmt: skip


def rows(data: Path, contexts: int, seed: int, *, shuffled: bool = False) -> list[dict[str, str]]:
    """Return the rows: six questions for each of some contexts, drawn at random.

    data: folder of the recorded workloads. shuffled: in random order; otherwise the questions of a
    context are neighbours. Raises OSError and ValueError.
    """
    with lzma.open(data / _FILE, "rb") as file:
        records = [one for one in map(orjson.loads, file) if len(one["questions"]) >= QUESTIONS]
    if contexts > len(records):
        raise ValueError(f"the data set has {len(records)} contexts, not {contexts}")
    rng = Random(seed)
    found = []
    for record in rng.sample(records, contexts):
        table = "\n".join(" | ".join(row) for row in record["table"])
        context = "\n\n".join((table, *record["paragraphs"]))
        found += [{"context": context, "question": q} for q in record["questions"][:QUESTIONS]]
    if shuffled:
        rng.shuffle(found)
    return found
