"""Text is plain technical English: the constructions listed here must not return."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from support.prose import files, prose
from support.sources import tree

RULES = {
    r"(?i)\b(nobody|somebody|whoever|whom|whomever)\b": "name the subject",
    r"(?i)\b(his|her|hers|him)\b": "a system is 'it'",
    r"(?i)\bso (long|many)\b(?! as\b)": "name the amount",
    r"(?i)\btold\b|\btells? of\b": "report, pass, receive, show",
    r"(?i)\b(give|gave|given|giving|gives) way\b": "is evicted, preempted or dropped",
    r"^(what|who|where|[Ww]hether what)\b(?!.*\?)": "begin with the subject",
    r"(^|[.;:] )(What|Who|Whose|Where)\b(?![^.]*\?)": "begin with the subject",
    r"(?i)\bof (its|their|one's) own\b": "its own ...",
    r"(?i)\b(go|goes|going|went) by\b": "uses, follows, depends on",
    r"(?i)\bas (it|they) (is|are|was|were)(?=\W*([.,;:)]|$))": "unchanged, or leave it out",
    r"(?i)\b(there|it|that|they) (is|are|was|were) none\b": "no ... exists; if it is invalid",
    r"(?i)\b(let|lets|letting) go of\b": "release, drop",
    r"(?i)\b(came|comes|come) (of|to nothing)\b": "result; fails",
    r"(?i)\bbut for\b": "except for",
    r"(?i)\bnothing but\b": "only",
    r"(?i)\bas [\w' ]{1,20} ha(s|ve) (it|them)\b": "as in ...",
    r"\b[Oo]nly then (is|are|does|do|can|may)\b|(^|[.;:] )Only then\b": "subject first",
    r"\b([Nn]either|[Nn]or) (is|are|does|do|has|have|was)\b": "subject first",
    r"(^|[.] )(Should|Had|Were) (the|a|an|it|its|this|that)\b(?!.*\?)": "If ...",
    r"(?i)\b(farewells?|foresees?|foreseen|displac\w+)\b": "evict, predict, preempt",
}
PATTERNS = [(re.compile(pattern), advice) for pattern, advice in RULES.items()]

# Names of classes and functions, and their standard terms.
RETIRED = {
    "Farewells": "EvictionNotifier", "Gone": "EndedProgram", "Beginning": "PromptPrefix",
    "Beginnings": "PrefixAffinityIndex", "CorkedTransport": "CoalescingTransport",
    "Tally": "Counter", "Told": "ProgramAttribute", "tell": "set_attribute",
    "foresee": "auto_prefill", "Ahead": "NextTurnPredictor", "context_of": "scheduling_context",
    "PrefillDesk": "PrefillManager", "DepartureWatch": "DisconnectMonitor",
    "Watch": "StreamObserver", "ChainRoots": "ResponseStore", "Sketch": "Fingerprint",
    "twins": "duplicates", "FairRoom": "FairLRU", "stories": "trace", "Held": "OpenCallRecord",
    "census": "counts", "take_up": "claim", "displace": "preempt", "victims": "preemption",
    "stir": "invalidate", "Standing": "QueueState", "patience": "max_hold_s",
}  # fmt: skip


@cache
def folders() -> dict[str, list[Path]]:
    """Return the files of each folder. Folders are at most three levels deep."""
    found: dict[str, list[Path]] = {}
    for file in files():
        if file.name != Path(__file__).name:
            found.setdefault(Path(*file.parent.parts[:3]).as_posix(), []).append(file)
    return found


def findings(file: Path) -> list[str]:
    """Return all constructions in a file that must not be there."""
    found = [
        f"{file}:{line}: '{match[0].strip()}' ({advice})"
        for line, text in prose(file)
        for pattern, advice in PATTERNS
        if (match := pattern.search(text))
    ]
    for node in ast.walk(tree(file)) if file.suffix == ".py" else ():
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            term = RETIRED.get(node.name.lstrip("_"))
            found += [f"{file}:{node.lineno}: {node.name} ({term})"] if term else []
    return found


@pytest.mark.parametrize("folder", sorted(folders()))
def test_text_is_plain(folder: str) -> None:
    found = [finding for file in folders()[folder] for finding in findings(file)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["The call is told.", "What is new is kept.", "Should a call end"])
def test_rules_find_constructions(text: str) -> None:
    assert any(pattern.search(text) for pattern, _ in PATTERNS)
