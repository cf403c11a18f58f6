"""Keeps outlines of the prompts of programs, and finds where a prompt leaves them. Without I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from weft_gateway.model import ProgramKey
from weft_gateway.policies.fair_lru import FairLRU
from weft_gateway.transcripts import outline
from weft_gateway.transcripts.outline import Change, Head, Outline

_LIMIT: Final = 32 << 20
# Prompts of a program, such as those of its sub-agents.
_MOST: Final = 8
_MOST_HEADS: Final = 1024
# Messages that a client may add before its next call.
_ADDED: Final = 16


class Found(NamedTuple):
    """How a prompt continues the program's earlier ones. before: the one with the longest common
    beginning, None without one. same_head: their heads are equal. common: messages in common.
    change: None if nothing was changed. billed: the heads differ in a billing line.
    """

    own: Outline
    before: Outline | None = None
    same_head: bool = False
    common: int = 0
    change: Change | None = None
    billed: bool = False

    @property
    def reach(self) -> tuple[float, float]:
        """Where the prompt leaves the earlier one, and where that ends, in tokens."""
        if self.before is None:
            return 0.0, 0.0
        ends = self.before.ends
        common = ends[self.common]
        if not self.same_head:
            return 0.0, common
        return common, common if self.change is None else ends[-1]


@dataclass(slots=True, eq=False)
class _Program:
    digest: str
    prompts: list[Outline] = field(default_factory=list)


class Prompts:
    """The prompts of the programs of one process. Beyond `limit` bytes, the tenant with most of
    them loses those of its programs that called longest ago.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._room = FairLRU[ProgramKey](limit)
        self._programs: dict[ProgramKey, _Program] = {}
        self._names: dict[str, ProgramKey] = {}
        self._heads: OrderedDict[int, Head] = OrderedDict()
        # By the last two messages of a tenant's prompt.
        self._by_end: dict[tuple[str, int], ProgramKey] = {}

    def __len__(self) -> int:
        return len(self._programs)

    def find(self, key: ProgramKey, own: Outline, raw: bytes, body: Mapping[str, Any]) -> Found:
        """Return how a prompt continues the earlier ones of its program. raw, body: of the call."""
        if own.head not in self._heads:
            self._heads[own.head] = outline.head_of(body)
            if len(self._heads) > _MOST_HEADS:
                self._heads.popitem(last=False)
        best, rank = Found(own), (0, 0, False)
        # Of equals, the latest one.
        for one in self._candidates(key, own):
            same, common = one.head == own.head, one.common(own.digests)
            at = (0 if not common else 2 if same else 1, common, same)
            if one.model == own.model and at >= rank and (same or common):
                best, rank = Found(own, one, same, common), at
        if (other := best.before) is None:
            return best
        if best.same_head:
            change = outline.edit(other, own, best.common)
        elif (known := self._heads.get(other.head)) is not None:
            change = outline.head_change(known, self._heads[own.head], raw, body)
        else:
            change = Change("system prompt")
        billed = best.same_head and other.billing != own.billing
        return best._replace(change=change, billed=billed)

    def _candidates(self, key: ProgramKey, own: Outline) -> list[Outline]:
        """Return the prompts of a program, or of one that a new program's prompt contains: a client
        without sessions has changed what its calls are recognised by, or has begun another session
        with an old history.
        """
        # A prompt that ends like another one does not continue it.
        for joint in () if key in self._programs else own.joints(_ADDED)[1:]:
            if (key := self._by_end.get((key.tenant, joint), key)) in self._programs:
                break
        return self._programs[key].prompts if key in self._programs else []

    def keep(
        self, key: ProgramKey, digest: str, found: Found, tokens: float, replica: str, at: float
    ) -> None:
        """Keep a prompt of so many tokens that a replica has computed. It replaces the one that it
        continues. digest: the program's name for engines. at: Unix time.
        """
        own, before = found.own, found.before
        own.measure(tokens, before if found.same_head else None, found.common)
        own.replica, own.at = replica, at
        program = self._programs.setdefault(key, _Program(digest))
        self._names[digest] = key
        whole = before is not None and found.common == len(before.digests)
        replaced = whole or found.change is not None
        kept = [one for one in program.prompts if one is not before or not replaced]
        kept = [*kept[1 - _MOST :], own]
        self._unlist(key, [one for one in program.prompts if one not in kept])
        program.prompts = kept
        for joint in own.joints(1):
            self._by_end[key.tenant, joint] = key
        for _, gone in self._room.put(key.tenant, key, sum([one.size for one in kept])):
            self._remove(gone)

    def name(self, digest: str) -> ProgramKey | None:
        """Return the program with this name for engines; None if it is unknown."""
        return self._names.get(digest)

    def ended(self, key: ProgramKey) -> None:
        """A program has ended because it was idle for too long: engines give its blocks up."""
        for prompt in self._programs[key].prompts if key in self._programs else ():
            prompt.ended = True

    def forget(self, key: ProgramKey) -> None:
        """Forget the prompts of a program."""
        if key in self._programs:
            self._room.drop(key.tenant, key)
            self._remove(key)

    def _remove(self, key: ProgramKey) -> None:
        program = self._programs.pop(key)
        self._names.pop(program.digest, None)
        self._unlist(key, program.prompts)

    def _unlist(self, key: ProgramKey, prompts: list[Outline]) -> None:
        for joint in [joint for one in prompts for joint in one.joints(1)]:
            if self._by_end.get((key.tenant, joint)) == key:
                del self._by_end[key.tenant, joint]
