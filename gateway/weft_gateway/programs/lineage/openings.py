"""First turns that nobody takes up: where a tenant sends nothing else, they are not looked
into until somebody comes back to one.

A classifier, a batch or a load generator sends first turns alone, thousands a second, and all that
lineage learns of them is in vain. So after ALONE of a tenant's calls in a row have been first turns
that nothing came of, the next ones are only kept, with their answers, as they came. A call that
begins with the text of a kept one has it read, before it is looked into itself. A call with
anything but a first turn ends this state; and one first turn of SAMPLED, later of SELDOM, is looked
into all the same, so that those which quote each other's answers are found out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_gateway.programs.lineage.rules import MAX_TWINS, Asked
from weft_gateway.programs.lineage.store import MAX_MARKS

ALONE: Final = 256
SAMPLED: Final = 16
# The same after LONG calls in a row: a sample costs ten times what keeping a call does.
SELDOM: Final = 64
LONG: Final = 4096
# Texts and answers that are kept, of all tenants. What does not fit is forgotten, the oldest first:
# who comes back to it begins a program.
KEPT_BYTES: Final = 8 << 20
# Of one call, and of its answer.
_MOST_BYTES: Final = 16_384
# What a call takes beside its texts, and each of these beside its letters.
_EACH_BYTES: Final = 1024
_TEXT_BYTES: Final = 128
_TENANTS: Final = 4096
_MORE: Final = frozenset({"tools", "functions", "system"})
# No set: a role may be anything, and a list has no hash.
_CLIENTS: Final = ("system", "developer", "user")

# Role and text of each message.
Texts = Sequence[tuple[str, str]]


class Opening:
    """A first turn that is kept as it came. fresh: the name of its program. size: bytes that it
    takes without its answer. raw: its answer, b"" while there is none; stream: it is server-sent
    events. placed: what became of it, once it has been read."""

    __slots__ = (
        "at_s", "fresh", "group", "model", "placed", "raw", "size", "stream", "tenant", "texts",
    )  # fmt: skip

    def __init__(
        self,
        tenant: str,
        model: Any,
        texts: Texts,
        size: int,
        fresh: str,
        at_s: float,
        group: _Group,
    ) -> None:
        self.tenant = tenant
        self.model = model
        self.texts = texts
        self.fresh = fresh
        self.at_s = at_s
        self.group = group
        self.size = size
        self.raw = b""
        self.stream = False
        self.placed: Asked | None = None

    def body(self) -> dict[str, Any]:
        """What was asked, as far as lineage goes by it."""
        messages = [{"role": role, "content": text} for role, text in self.texts]
        return {"model": self.model, "messages": messages}


class _Group:
    """First turns whose last text is the same; what comes before it may differ. size: bytes that
    it takes without them. seen: how many have come. failed: one was not answered."""

    __slots__ = ("failed", "kept", "seen", "size")

    def __init__(self, size: int) -> None:
        self.kept: list[Opening] = []
        self.seen = 0
        self.failed = False
        self.size = size

    @property
    def held(self) -> int:
        """Bytes that it takes."""
        return self.size + sum(one.size + len(one.raw) for one in self.kept)


class Openings:
    """Says which calls are only kept, and gives those back that somebody comes back to."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._limit = kept_bytes
        self._alone: OrderedDict[str, int] = OrderedDict()
        self._groups: OrderedDict[tuple[str, str], _Group] = OrderedDict()
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that are kept."""
        return self._held

    def keep(self, tenant: str, body: Mapping[str, Any], fresh: str, at_s: float) -> Opening | None:
        """The call, kept; None if it is to be looked into. fresh: a name for its program."""
        count = self._alone.get(tenant, 0)
        if count < ALONE:
            return None
        texts = texts_of(body)
        if texts is None:
            return None
        self._alone[tenant] = count + 1
        size = _EACH_BYTES
        for _, text in texts:
            size += _TEXT_BYTES + len(text)
        if size > _MOST_BYTES:
            return None
        place = tenant, texts[-1][1]
        group = self._groups.get(place)
        if group is None:
            if len(texts) > 1 and self._passed(tenant, body):
                return None
            if not count % (SAMPLED if count < LONG else SELDOM):
                return None
            group = self._groups[place] = _Group(size)
            self._held += size
        group.seen += 1
        if 1 < group.seen <= MAX_TWINS or group.failed:
            # The one that it repeats may be waiting for it.
            return None
        opening = Opening(tenant, body.get("model"), texts, size, fresh, at_s, group)
        group.kept.append(opening)
        self._add(opening.size)
        if len(group.kept) > MAX_MARKS:
            self.drop(group.kept[0])
        return opening

    def answered(self, opening: Opening, raw: bytes, stream: bool) -> None:
        """Keep an answer with its call."""
        if len(raw) <= _MOST_BYTES and opening in opening.group.kept:
            opening.raw, opening.stream = raw, stream
            self._add(len(raw))

    def drop(self, opening: Opening) -> None:
        """Keep it no longer."""
        group = opening.group
        if opening in group.kept:
            group.kept.remove(opening)
            self._held -= opening.size + len(opening.raw)

    def taken_up(self, tenant: str, body: Mapping[str, Any]) -> list[Opening]:
        """The kept calls which this one repeats, or goes on from. They are kept no longer."""
        if not self._groups:
            return []
        found = [one for group in self._passed(tenant, body) for one in group.kept]
        for opening in found:
            self.drop(opening)
        return found

    def saw(self, tenant: str, body: Mapping[str, Any], alone: bool) -> None:
        """A call was looked into. alone: it goes on from nothing that is known."""
        if not alone or texts_of(body) is None:
            self._alone.pop(tenant, None)
            return
        count = self._alone.get(tenant, 0)
        if count < ALONE:
            self._alone[tenant] = count + 1
            if len(self._alone) > _TENANTS:
                self._alone.popitem(last=False)

    def _passed(self, tenant: str, body: Mapping[str, Any]) -> list[_Group]:
        """The groups whose last text is among those that the call begins with."""
        messages = body.get("messages")
        found = []
        for message in messages if isinstance(messages, list) else ():
            if not isinstance(message, dict) or message.get("role") not in _CLIENTS:
                break
            text = message.get("content")
            group = self._groups.get((tenant, text)) if isinstance(text, str) else None
            if group is not None:
                found.append(group)
        return found

    def _add(self, size: int) -> None:
        self._held += size
        while self._held > self._limit and self._groups:
            _, group = self._groups.popitem(last=False)
            self._held -= group.held
            group.kept.clear()


def texts_of(body: Mapping[str, Any]) -> list[tuple[str, str]] | None:
    """The messages of a first turn: of clients alone, of plain text, and without tools, with which
    an agent goes on. None for any other call."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not _MORE.isdisjoint(body):
        return None
    texts = []
    for message in messages:
        if not isinstance(message, dict):
            return None
        role, text = message.get("role"), message.get("content")
        if not isinstance(text, str) or role not in _CLIENTS:
            return None
        texts.append((role, text))
    return texts
