"""Keeps outlines of the prompts of programs, and finds where a prompt leaves them. Without I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from weft_gateway.model import ProgramKey
from weft_gateway.policies.fair_lru import FairLRU
from weft_gateway.transcripts import outline
from weft_gateway.transcripts.outline import Change, Head, Outline, Sketch

_LIMIT: Final = 32 << 20
# Prompts of a program, such as those of its sub-agents.
_MOST: Final = 8
_MOST_HEADS: Final = 1024
# Messages that a client may add before its next call.
_ADDED: Final = 16


@dataclass(slots=True, eq=False)
class Prompt:
    """A prompt that a replica has computed. at: Unix time. ended: the program had ended before its
    next call, because it was idle for too long.
    """

    outline: Outline
    replica: str
    at: float
    ended: bool = False


class Found(NamedTuple):
    """How a prompt continues the program's earlier ones. before: the prompt with the longest common
    beginning, None without one. same_head: their heads are equal. common: messages in common.
    change: None if nothing was changed. billing: a change of a line that the engine should leave
    out.
    """

    before: Prompt | None = None
    same_head: bool = False
    common: int = 0
    change: Change | None = None
    billing: Change | None = None

    @property
    def base(self) -> Outline | None:
        """The outline whose positions the prompt shares."""
        return self.before.outline if self.before is not None and self.same_head else None

    @property
    def reach(self) -> tuple[float, float]:
        """Where the prompt leaves the earlier one, and where that ends, in tokens."""
        if self.before is None:
            return 0.0, 0.0
        own = self.before.outline
        if not self.same_head:
            return 0.0, own.end(self.common)
        common = own.end(self.common)
        return common, common if self.change is None else own.tokens


@dataclass(slots=True, eq=False)
class _Program:
    digest: str
    prompts: list[Prompt] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum([prompt.outline.size for prompt in self.prompts])


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

    def find(self, key: ProgramKey, now: Sketch, raw: bytes, body: Mapping[str, Any]) -> Found:
        """Return how a prompt continues the earlier ones of its program. raw, body: of the call."""
        own = now.outline
        if own.head not in self._heads:
            self._heads[own.head] = outline.head_of(body)
            if len(self._heads) > _MOST_HEADS:
                self._heads.popitem(last=False)
        program = self._programs.get(key) or self._continued(key.tenant, own)
        if program is None:
            return Found()
        best, rank = Found(), (0, 0, 0)
        # Of equals, the latest one.
        for prompt in program.prompts:
            other = prompt.outline
            if other.model != own.model:
                continue
            same = other.head == own.head and (own.dropped or other.billing == own.billing)
            common = other.common(own.digests)
            at = (2 if same and common else 1 if common else 0, common, int(same))
            if at >= rank and (same or common):
                best, rank = Found(prompt, same, common), at
        before = best.before
        if before is None:
            return best
        other = before.outline
        billed = best.same_head and other.billing != own.billing
        return best._replace(
            change=self._change(other, best, now, raw, body),
            billing=outline.billing_change(raw) if billed else None,
        )

    def _continued(self, tenant: str, own: Outline) -> _Program | None:
        """Return the program that a new program's prompt contains: a client without sessions has
        changed what its calls are recognised by, or has begun another session with an old history.
        """
        # A prompt that ends like another one does not continue it.
        for joint in own.joints(_ADDED)[1:]:
            key = self._by_end.get((tenant, joint))
            if key is not None:
                return self._programs[key]
        return None

    def _change(
        self, before: Outline, found: Found, now: Sketch, raw: bytes, body: Mapping[str, Any]
    ) -> Change | None:
        own = now.outline
        if found.same_head:
            kind = outline.edit(before, now, found.common)
            return now.change(kind, found.common) if kind else None
        if before.head == own.head:
            return outline.billing_change(raw)
        known = self._heads.get(before.head)
        if known is None:
            return Change("system prompt", "", None, 0)
        return outline.head_change(known, self._heads[own.head], raw, body)

    def keep(self, key: ProgramKey, digest: str, found: Found, prompt: Prompt) -> None:
        """Keep a prompt. It replaces the one that it continues. digest: the program's name for
        engines.
        """
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = _Program(digest)
            self._names[digest] = key
        others, before = program.prompts, found.before
        whole = before is not None and found.common == len(before.outline.digests)
        if before in others and (whole or found.change is not None):
            others.remove(before)
            self._unlist(key, before)
        others.append(prompt)
        for joint in prompt.outline.joints(1):
            self._by_end[key.tenant, joint] = key
        for old in others[:-_MOST]:
            self._unlist(key, old)
        del others[:-_MOST]
        for _, gone in self._room.put(key.tenant, key, program.size):
            self._remove(gone)

    def name(self, digest: str) -> ProgramKey | None:
        """Return the program with this name for engines; None if it is unknown."""
        return self._names.get(digest)

    def ended(self, key: ProgramKey) -> None:
        """A program has ended because it was idle for too long: engines give its blocks up."""
        for prompt in self._of(key):
            prompt.ended = True

    def forget(self, key: ProgramKey) -> None:
        """Forget the prompts of a program."""
        if key in self._programs:
            self._room.drop(key.tenant, key)
            self._remove(key)

    def _of(self, key: ProgramKey) -> Iterator[Prompt]:
        program = self._programs.get(key)
        yield from program.prompts if program is not None else ()

    def _remove(self, key: ProgramKey) -> None:
        program = self._programs.pop(key)
        self._names.pop(program.digest, None)
        for prompt in program.prompts:
            self._unlist(key, prompt)

    def _unlist(self, key: ProgramKey, prompt: Prompt) -> None:
        for joint in prompt.outline.joints(1):
            if self._by_end.get((key.tenant, joint)) == key:
                del self._by_end[key.tenant, joint]
