"""How the process table lies in Redis: the keys, and a program's row.

| key (after the prefix) | type | holds |
|---|---|---|
| p:TENANT/PROGRAM | hash | the row; fields `t:CALL` for active calls, `h:NAME` for what was told |
| calls | hash | TENANT/PROGRAM and call of each open call to its replica |
| in_flight | hash | replica to the number of its calls in `calls` |
| activity | sorted set | TENANT/PROGRAM by the Unix time of its last activity |
| n:TENANT | sorted set | the tenant's programs that have a name, all with score 0: by their ids |
| i:TENANT | sorted set | those of them without an open call, by the Unix time since when |
| leases | sorted set | TENANT/PROGRAM and call by Redis' time of the last sign of its gateway |
| totals | hash | programs created and ended since the table began |
| answers | hash | TENANT/RESPONSE to what is known of a stored answer |
| answer_ages | sorted set | the same by the Unix time of their making |
| answer_order | sorted set | TENANT/time/RESPONSE, all with score 0: each tenant's, oldest first |
| answer_counts | sorted set | tenants by how many answers they have |
| answer_owners | hash | an answer's id to its tenant |
| table | string | a random name of the table itself: another one means that the rows were lost |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from weft_gateway.model import Program, ProgramAttribute, ProgramKey, Thread

_CALL: Final = b"t:"
_ATTRIBUTE: Final = b"h:"


def encode(text: str) -> bytes:
    """Any string, also one with lone surrogates out of a JSON escape, as bytes and back."""
    return text.encode("utf-8", "surrogatepass")


def decode(raw: bytes) -> str:
    """The reverse of `encode`."""
    return raw.decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one table. All carry the prefix as a hash tag, so that a cluster keeps a table in
    one slot and a script may touch a row, the counts and the indexes together."""

    base: bytes

    @classmethod
    def of(cls, prefix: str) -> Keys:
        """Keys that begin with `prefix`. ValueError if it would break the hash tag."""
        if not prefix or "{" in prefix or "}" in prefix:
            raise ValueError(f"not a key prefix: {prefix!r}")
        return cls(b"{" + encode(prefix) + b"}:")

    @property
    def in_flight(self) -> bytes:
        """Open calls by replica."""
        return self.base + b"in_flight"

    @property
    def calls(self) -> bytes:
        """Open calls and their replicas."""
        return self.base + b"calls"

    @property
    def activity(self) -> bytes:
        """Programs by last activity."""
        return self.base + b"activity"

    @property
    def leases(self) -> bytes:
        """Open calls by their gateway's last sign."""
        return self.base + b"leases"

    @property
    def totals(self) -> bytes:
        """Programs created and ended."""
        return self.base + b"totals"

    @property
    def table(self) -> bytes:
        """The table's own name."""
        return self.base + b"table"

    @property
    def answers(self) -> bytes:
        """Stored answers."""
        return self.base + b"answers"

    @property
    def answer_ages(self) -> bytes:
        """Stored answers by age."""
        return self.base + b"answer_ages"

    @property
    def of_answers(self) -> list[bytes]:
        """Every key about stored answers."""
        base = self.base
        others = (b"answer_order", b"answer_counts", b"answer_owners")
        return [self.answers, self.answer_ages, *(base + name for name in others)]

    def names(self, tenant: str) -> bytes:
        """A tenant's named programs."""
        return self.base + b"n:" + encode(tenant)

    def idle(self, tenant: str) -> bytes:
        """A tenant's named programs without an open call."""
        return self.base + b"i:" + encode(tenant)

    def row(self, key: ProgramKey) -> bytes:
        """A program's row."""
        return self.base + b"p:" + member(key)


def member(key: ProgramKey) -> bytes:
    """A program in an index. A tenant has no slash, so the first one ends it."""
    return encode(f"{key.tenant}/{key.program}")


def key_of(raw: bytes) -> ProgramKey:
    """The reverse of `member`."""
    tenant, _, name = decode(raw).partition("/")
    return ProgramKey(tenant, name)


def lease(key: ProgramKey, call: str) -> bytes:
    """A call in `leases`. A call's id has no newline, so the first one ends it."""
    return encode(call) + b"\n" + member(key)


def leased(raw: bytes) -> tuple[ProgramKey, str]:
    """The reverse of `lease`."""
    call, _, program = raw.partition(b"\n")
    return key_of(program), decode(call)


def number(value: float) -> str:
    """A float for Lua without loss: Redis cuts numbers, not strings."""
    return repr(float(value))


def unpack(reply: bytes) -> list[bytes]:
    """The strings of a script's reply (`lua/pack.lua`)."""
    lengths, _, rest = reply.partition(b"\n")
    parts, at = [], 0
    for length in lengths.split():
        end = at + int(length)
        parts.append(rest[at:end])
        at = end
    return parts


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """HGETALL in a script's reply."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def counts(flat: Sequence[bytes]) -> dict[str, int]:
    """The in-flight hash."""
    return {decode(name): int(value) for name, value in pairs(flat).items()}


def program(key: ProgramKey, row: Mapping[bytes, bytes]) -> Program:
    """The row as a snapshot."""

    def real(name: bytes) -> float:
        return float(row.get(name, 0.0))

    def whole(name: bytes) -> int:
        return int(row.get(name, 0))

    threads = []
    for name, packed in row.items():
        if name.startswith(_CALL):
            # Only the threads' ids, which are last, may hold a newline.
            arrival, _, replica, size, ids = packed.split(b"\n", 4)
            parent, thread = decode(ids[: int(size)]), decode(ids[int(size) :])
            call, at_s = decode(name[2:]), float(arrival)
            threads.append(Thread(call, thread, decode(replica), at_s, 0.0, 0.0, parent))
    threads.sort(key=lambda t: (t.arrival_s, t.call))
    return Program(
        key=key,
        arrival_s=real(b"arrival"),
        service_s=real(b"service"),
        critical_path_s=real(b"critical_path"),
        waiting_s=real(b"waiting"),
        home=decode(row.get(b"home", b"")),
        threads=tuple(threads),
        last_arrival_s=real(b"last_arrival"),
        last_completion_s=real(b"last_completion"),
        calls=whole(b"calls"),
        calls_closed=whole(b"calls_closed"),
        errors=whole(b"errors"),
        prompt_tokens=whole(b"prompt"),
        cached_tokens=whole(b"cached"),
        output_tokens=whole(b"output"),
        preemptions=whole(b"preemptions"),
        ephemeral=row.get(b"ephemeral") == b"1",
        ended=b"ended" in row,
        # Few have any, and looking at every field for it would cost all calls.
        attributes=_attributes(row) if b"told" in row else (),
    )


def _attributes(row: Mapping[bytes, bytes]) -> tuple[ProgramAttribute, ...]:
    found = []
    for name, packed in row.items():
        if name.startswith(_ATTRIBUTE):
            until_s, _, text = packed.partition(b"\n")
            found.append(
                ProgramAttribute(
                    decode(name.removeprefix(_ATTRIBUTE)), decode(text), float(until_s)
                )
            )
    return tuple(sorted(found, key=lambda attribute: attribute.name))
