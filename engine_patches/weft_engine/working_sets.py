"""Working sets: the programs whose contexts an engine keeps in its cache between their calls. Pure.

If the working sets of all programs exceed memory, each call finds its context evicted, in whatever
order calls run (thrashing; Denning, 1968). Then some programs have to wait as a whole. Residents
are programs whose sets fit together. They keep their places; free places go to the programs of the
lowest level, the oldest first. The calls of the others use the memory that is left.

A program's set is the union of its threads' contexts, and blocks that residents share count once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge, nsmallest
from typing import Final

from weft_engine.context_tree import HELD, KEPT, Context, ContextTree
from weft_engine.forecast import ServiceForecast

# Ended programs from which growth is learned, and gaps between calls.
_LEARNED: Final = 32
_GAPS: Final = 64
_FEWEST_GAPS: Final = 8
# Of the first gaps, the share after which a program calls again, below which it is not waited for.
_RETURNING: Final = 0.5
# The share of the predicted growth that is reserved: programs that end soon and programs that have
# just begun do not need all of it at one time.
_GROWTH: Final = 0.5
# A context that has at least this share of its blocks in common with a program's next call is the
# one that this call continues, after an edit.
_EDITED: Final = 0.5
# Threads of a program without a call that are remembered.
_MOST_IDLE: Final = 32
# Programs that are tried after the first one that does not fit.
_TRIED: Final = 16
# Above this number, this many programs without a call are forgotten.
_MOST_PROGRAMS: Final = 4096
_FORGOTTEN: Final = 512
# Rounding of blocks per weight.
_ROUNDING: Final = 1e-9


@dataclass(slots=True, eq=False)
class Thread:
    """A context of a program that grows from call to call. calls: its calls in the engine. made:
    its calls so far. idle_since: when its last call ended. further: it began beside others. wanted:
    it is in the program's set. A further thread is not while its first call waits or runs, and in
    its first gap only if such threads usually call again. before: the blocks with hashes of the
    context that its call in the engine continues, 0 if it is an edit or a further call does so
    too."""

    program: str
    context: Context
    further: bool
    wanted: bool
    calls: int = 0
    made: int = 0
    idle_since: float = 0.0
    before: int = 0


@dataclass(slots=True, eq=False)
class WorkingSet:
    """The memory of one program, in blocks. first: the context of its first call. longest: its
    longest context now. peak: so far. calls: its calls in the engine. idle_since: when its last
    call ended. made: its calls so far. growth: what is reserved for it beyond its set while it is
    resident. service_s: attained so far. filed: its tenant and kind, None if it is no candidate."""

    name: str
    arrival_s: float
    tenant: str
    weight: float
    first: int
    longest: int
    peak: int
    calls: int = 0
    idle_since: float = 0.0
    made: int = 0
    growth: int = 0
    service_s: float = 0.0
    threads: list[Thread] = field(default_factory=list)
    filed: tuple[str, tuple[int, int]] | None = None

    @property
    def contexts(self) -> list[Context]:
        """Those of its set. Without any, the program is no candidate."""
        return [thread.context for thread in self.threads if thread.wanted]


class WorkingSets:
    """The programs of one engine. tree: its contexts.

    blocks: for the predicted sets of residents. most: for their sets. residents: their names. left:
    what the predicted sets leave of `blocks`, below 0 after growth. reserved: for the growth of
    residents. block_s: seconds in which a block is computed or loaded again. closed: no new
    places are given, because a further call of a resident waits for memory.
    """

    def __init__(self, blocks: int, most: int = 0) -> None:
        self.blocks = blocks
        self.most = max(blocks, most)
        self.block_s = 0.0
        self.closed = False
        self.forecast = ServiceForecast()
        self.tree = ContextTree()
        self.residents: set[str] = set()
        self.reserved = 0
        self._sets: dict[str, WorkingSet] = {}
        self._growth: deque[int] = deque(maxlen=_LEARNED)
        # By how much the contexts of all residents have grown.
        self._grown = 0
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        # Whether programs, and their further threads, called again after their first gaps.
        self._returned: deque[bool] = deque(maxlen=_GAPS)
        self._further: deque[bool] = deque(maxlen=_GAPS)
        # Threads in a gap within the limit, the longest one first.
        self._idle: OrderedDict[Thread, None] = OrderedDict()
        self._tenants: Counter[str] = Counter()
        # Changes of the residents that `choose` has not reported yet.
        self._came: set[str] = set()
        self._gone: set[str] = set()
        # Residents and other candidates by tenant and kind, the oldest first.
        self._inside: dict[tuple[str, tuple[int, int]], list[tuple[float, str]]] = {}
        self._outside: dict[tuple[str, tuple[int, int]], list[tuple[float, str]]] = {}
        self._changed = False
        # The memory that was left when the first candidates outside did not fit.
        self._tried = 0

    @property
    def left(self) -> int:
        """See WorkingSets."""
        return self.blocks - self.tree.used[KEPT] - self.reserved

    @property
    def _exceeded(self) -> bool:
        return self.tree.used[KEPT] > self.most

    def arrive(
        self,
        program: str,
        blocks: int,
        now: float,
        arrival_s: float,
        tenant: str = "",
        weight: float = 1.0,
        service_s: float = 0.0,
        chain: Sequence[bytes] | None = None,
    ) -> Thread:
        """A call of a program has arrived. Returns the thread that it continues or begins. blocks:
        of its context. arrival_s: of the program. service_s: what its ended calls have received.
        chain: the hashes of its full blocks; None if unknown, then all its calls are one thread."""
        known = self._sets.get(program)
        if known is None:
            known = WorkingSet(program, arrival_s, tenant, weight, blocks, blocks, blocks)
            self._sets[program] = known
            self._tenants[tenant] += 1
        elif known.calls <= 0:
            self._gaps.append(now - known.idle_since)
            if known.made == 1:
                self._returned.append(True)
        thread = self._thread(known, blocks, chain, now)
        known.calls += 1
        known.made += 1
        thread.calls += 1
        thread.made += 1
        self._attain(known, service_s)
        self._settle(known)
        return thread

    def single(self, blocks: int, chain: Sequence[bytes]) -> Thread:
        """Return the thread of a call that belongs to no program. Arguments as for `arrive`."""
        return Thread("", self.tree.add(chain, blocks), False, False, calls=1)

    def leave(
        self,
        thread: Thread,
        blocks: int,
        now: float,
        service_s: float = 0.0,
        chain: Sequence[bytes] | None = None,
    ) -> None:
        """A thread's call has ended with a context of this many blocks. service_s: what the program
        has received by now. chain: as for `arrive`."""
        known = self._sets.get(thread.program)
        thread.calls -= 1
        if known is None or thread not in known.threads:
            if thread.calls <= 0:
                self.tree.drop(thread.context)
            return
        self._attain(known, service_s)
        known.calls -= 1
        known.idle_since = thread.idle_since = now
        if chain is not None:
            self.tree.move(thread.context, chain, blocks)
        elif blocks > known.longest:
            self.tree.move(thread.context, (), blocks)
        if thread.calls <= 0:
            self._idle[thread] = None
            once = thread.further and thread.made == 1
            self._want(thread, not once or _most(self._further, False))
            idle = [one for one in known.threads if not one.calls]
            if len(idle) > _MOST_IDLE:
                self._drop_thread(known, min(idle, key=lambda one: one.idle_since))
        self._settle(known, True)
        if known.calls <= 0 and known.made == 1 and not _most(self._returned, True):
            self._leave_place(known)
        if len(self._sets) > _MOST_PROGRAMS:
            self._forget()

    def end(self, program: str) -> None:
        """A program will not call again."""
        known = self._sets.get(program)
        if known is not None:
            self.forecast.end(known.service_s)
            if known.calls <= 0 and known.made == 1 and known.threads:
                self._returned.append(False)
            if known.threads:
                self._leave_place(known)
            del self._sets[program]
            self._tenants -= Counter([known.tenant])

    def calls_of(self, program: str) -> int:
        """Return how many calls a program has made; 0 if it is unknown."""
        known = self._sets.get(program)
        return 0 if known is None else known.made

    def level(self, program: str) -> int:
        """Return the level of a program, the lowest first (see ServiceForecast). The context of a
        program that is no resident has to be computed again."""
        known = self._sets.get(program)
        return self.forecast.level_of((0, 0) if known is None else self._kind(known))

    def expire(self, before: float) -> None:
        """Threads without a call since before this instant leave their programs' sets. Programs
        without threads are no candidates until they call again."""
        while self._idle:
            thread = next(iter(self._idle))
            if thread.idle_since > before:
                return
            known = self._sets[thread.program]
            if len(known.threads) > 1:
                self._drop_thread(known, thread)
                self._settle(known)
                continue
            if known.made == 1:
                self._returned.append(False)
            self._leave_place(known)

    def usual_gap_s(self) -> float | None:
        """Return how long nine of ten recent gaps between two calls of a program lasted at most,
        seconds; None if few are known."""
        if len(self._gaps) < _FEWEST_GAPS:
            return None
        return sorted(self._gaps)[len(self._gaps) * 9 // 10]

    def next_idle(self) -> float | None:
        """Return since when the thread that has waited longest is without a call; None if all
        have calls or are away longer than the limit."""
        return next(iter(self._idle)).idle_since if self._idle else None

    def choose(self) -> tuple[set[str], set[str]]:
        """Choose the residents again. Returns the programs that became residents, and those that
        are residents no more, which come first if a program is in both.

        While residents have grown beyond their memory, the one of the highest level loses its
        place, the youngest first. Free places go to the tenant with the fewest resident blocks per
        weight, which may take them from the one with the most; inside a tenant to programs of the
        lowest level, the oldest first; one that does not fit is skipped.
        """
        if self._changed:
            while self._exceeded and self.residents:
                self._lose(self._worst())
            if not self.closed:
                self._fill()
                self._tried = self.left
            self._changed = False
        came, gone, self._came, self._gone = self._came, self._gone, set(), set()
        return came, gone

    def take_place(self, program: str) -> bool:
        """Make a candidate a resident in place of those of the highest levels, the youngest first.
        Returns False if its set does not fit at all, or is empty."""
        known = self._sets.get(program)
        if (
            known is None
            or not known.contexts
            or known.longest + self._predicted(known) > self.blocks
        ):
            return False
        while self._needed(known) > self.left and self.residents:
            self._lose(self._worst())
        self._admit(known)
        return True

    def reopen(self, closed: bool) -> None:
        """See `closed`."""
        self._changed |= self.closed and not closed
        self.closed = closed

    def violations(self) -> list[str]:
        """Return inconsistencies in words."""
        found = self.tree.violations()
        reserved = 0
        for name, known in self._sets.items():
            resident = name in self.residents
            if known.calls < 0 or known.calls != sum(thread.calls for thread in known.threads):
                found.append(f"{name} has {known.calls} calls")
            files = self._inside if resident else self._outside
            if bool(known.contexts) != (known.filed is not None):
                found.append(f"{name} is no candidate and has a place, or the other way round")
            if known.filed and (known.arrival_s, name) not in files.get(known.filed, ()):
                found.append(f"{name} is not where it is looked for")
            reserved += known.growth
            if any(bool(c.holders[KEPT]) is not resident for c in known.contexts):
                found.append(f"the contexts of {name} are not kept as a resident's")
        if reserved != self.reserved:
            found.append(f"{reserved} blocks are reserved, and {self.reserved} are counted")
        filed = sum(
            len(names) for files in (self._inside, self._outside) for names in files.values()
        )
        if filed != sum(known.filed is not None for known in self._sets.values()):
            found.append("candidates remain")
        if not self._changed and self._exceeded:
            found.append(f"residents have {self.tree.used[KEPT]} of {self.most} blocks")
        residents = [self._sets[name] for name in self.residents]
        if self._grown != sum(one.peak - one.first for one in residents):
            found.append("the growth of residents is miscounted")
        return found

    def clear(self) -> None:
        """The cache was emptied: forget programs without a call, and choose all residents anew."""
        for name in [name for name, known in self._sets.items() if known.calls <= 0]:
            self.end(name)
        for name in list(self.residents):
            self._lose(self._sets[name])
        self._came, self._gone, self._changed = set(), set(), True

    # -- threads -----------------------------------------------------------------------------

    def _thread(
        self, known: WorkingSet, blocks: int, chain: Sequence[bytes] | None, now: float
    ) -> Thread:
        thread = self._continued(known, chain)
        if thread is None:
            self._part(known, chain or (), now)
            context = self.tree.add(chain or (), blocks)
            thread = Thread(known.name, context, bool(known.threads), False)
            known.threads.append(thread)
            return thread
        if thread.further and thread.made == 1:
            self._further.append(True)
        self._idle.pop(thread, None)
        if chain is not None:
            depth = thread.context.depth
            thread.before = depth if self.tree.shared(thread.context, chain) == depth else 0
            self.tree.move(thread.context, chain, blocks)
        elif blocks > known.longest:
            self.tree.move(thread.context, (), blocks)
        self._want(thread, True)
        return thread

    def _part(self, known: WorkingSet, chain: Sequence[bytes], now: float) -> None:
        """If a call in the engine continues the context that this one continues too, both are
        further threads, and their parent's thread has no call."""
        for thread in known.threads:
            before = thread.before
            if thread.calls and before and self.tree.shared(thread.context, chain) >= before:
                context = self.tree.add(chain[:before], before)
                parent = Thread(known.name, context, thread.further, False, made=thread.made - 1)
                parent.idle_since = now
                known.threads.append(parent)
                self._idle[parent] = None
                self._want(parent, True)
                thread.further, thread.made, thread.before = True, 1, 0
                self._want(thread, False)
                return

    def _continued(self, known: WorkingSet, chain: Sequence[bytes] | None) -> Thread | None:
        """Return the thread that a call continues: the one whose context it has most of, if that is
        most of the context. None if it begins one."""
        if chain is None:
            return known.threads[0] if known.threads else None
        best, most = None, -1.0
        for thread in known.threads:
            if thread.calls:
                continue
            common = self.tree.shared(thread.context, chain)
            if common >= _EDITED * thread.context.depth and common > most:
                best, most = thread, common
        return best

    def _want(self, thread: Thread, wanted: bool) -> None:
        if thread.wanted is wanted:
            return
        thread.wanted = wanted
        if thread.program in self.residents:
            self._keep(thread.context, wanted)
            self._freed()

    def _drop_thread(self, known: WorkingSet, thread: Thread) -> None:
        if thread.further and thread.made == 1 and not thread.calls:
            self._further.append(False)
        self._idle.pop(thread, None)
        self._want(thread, False)
        known.threads.remove(thread)
        if not thread.calls:
            # Otherwise it leaves with its last call.
            self.tree.drop(thread.context)

    def _leave_place(self, known: WorkingSet) -> None:
        """A program has ended or is away."""
        self._growth.append(known.peak - known.first)
        for thread in list(known.threads):
            self._drop_thread(known, thread)
        known.calls = 0
        self._settle(known)

    def _forget(self) -> None:
        """End the programs that have been away longest: many, because one takes as long to find."""
        idle = [name for name, known in self._sets.items() if known.calls <= 0]
        for name in nsmallest(_FORGOTTEN, idle, key=lambda name: self._sets[name].idle_since):
            self.end(name)

    # -- places ------------------------------------------------------------------------------

    def _settle(self, known: WorkingSet, ended: bool = False) -> None:
        """The set of a program may have changed. ended: by the end of a call."""
        if not known.contexts:
            for thread in known.threads[:1]:
                self._want(thread, True)
        lengths = [context.blocks for context in known.contexts]
        known.longest = max(lengths, default=0)
        grown = max(0, known.longest - known.peak) if ended else 0
        known.peak += grown
        self._unfile(known)
        if known.name in self.residents:
            self._grown += grown
            if not lengths:
                self._lose(known, refile=False)
                return
            before, known.growth = known.growth, self._predicted(known)
            self.reserved += known.growth - before
            self._file(known)
            self._freed()
        elif lengths:
            # It takes no other's place, except that of another tenant.
            if not (self._changed or self.closed) and self._needed(known) <= self.left:
                self._admit(known)
            else:
                self._changed |= len(self._tenants) > 1
                self._file(known)

    def _freed(self) -> None:
        """Memory of residents has changed."""
        self._changed |= self._exceeded or (bool(self._outside) and self.left > self._tried)

    def _keep(self, context: Context, kept: bool) -> None:
        change = self.tree.hold if kept else self.tree.release
        change(context, KEPT)
        change(context, HELD)

    def _needed(self, known: WorkingSet) -> int:
        return self.tree.adds(known.contexts, KEPT) + self._predicted(known)

    def _predicted(self, known: WorkingSet) -> int:
        # Long programs end late, so those that run are counted too.
        growth = sum(self._growth) / len(self._growth) if self._growth else 0.0
        growth = max(growth, self._grown / len(self.residents) if self.residents else 0.0)
        return int(_GROWTH * max(0.0, known.first + growth - known.longest))

    def _admit(self, known: WorkingSet) -> None:
        self._unfile(known)
        for context in known.contexts:
            self._keep(context, True)
        known.growth = self._predicted(known)
        self.reserved += known.growth
        self._grown += known.peak - known.first
        self.residents.add(known.name)
        self._came.add(known.name)
        self._file(known)

    def _lose(self, known: WorkingSet, refile: bool = True) -> None:
        self._unfile(known)
        for context in known.contexts:
            self._keep(context, False)
        self.reserved -= known.growth
        self._grown -= known.peak - known.first
        known.growth = 0
        self.residents.remove(known.name)
        if known.name in self._came:
            self._came.remove(known.name)
        else:
            self._gone.add(known.name)
        if refile:
            self._file(known)
        self._freed()

    def _fill(self) -> None:
        queues = {tenant: self._candidates(tenant) for tenant in {key[0] for key in self._outside}}
        misfits, of = 0, self._blocks_by_tenant()
        while queues and misfits < _TRIED:
            tenant = min(queues, key=lambda name: (of[name], name))
            known = next(queues[tenant], None)
            if known is None:
                del queues[tenant]
                continue
            wanted = self._needed(known)
            while wanted > self.left and self._yields(tenant, wanted / known.weight, of):
                of = self._blocks_by_tenant()
            if wanted > self.left:
                misfits += 1
            else:
                self._admit(known)
                of = self._blocks_by_tenant()

    def _yields(self, tenant: str, wanted: float, of: dict[str, float]) -> bool:
        """Take a place of the tenant that has the most blocks per weight for another one, if that
        tenant still has no more afterwards. of: the blocks of each. Returns whether a place was
        taken."""
        if len(self._tenants) < 2:
            return False
        rich = max(of, key=lambda name: (of[name], name))
        if rich == tenant or not of[rich]:
            return False
        worst = self._worst(rich)
        size = (worst.longest + worst.growth) / worst.weight
        if of[rich] - size + _ROUNDING < of[tenant] + wanted:
            return False
        self._lose(worst)
        return True

    def _blocks_by_tenant(self) -> dict[str, float]:
        """Return the resident blocks per weight; shared ones count for each program."""
        found = dict.fromkeys(self._tenants, 0.0)
        if len(found) > 1:
            for one in map(self._sets.__getitem__, self.residents):
                found[one.tenant] += (one.longest + one.growth) / one.weight
        return found

    def _worst(self, tenant: str | None = None) -> WorkingSet:
        """Return the resident of the highest level, the youngest one. tenant: None for all."""
        level = self.forecast.level_of
        youngest = [
            (level(kind), filed[-1])
            for (of, kind), filed in self._inside.items()
            if tenant in (None, of)
        ]
        return self._sets[max(youngest)[1][1]]

    def _candidates(self, tenant: str) -> Iterator[WorkingSet]:
        """Yield the candidates outside, of the lowest level and the oldest first."""
        levels: dict[int, list[list[tuple[float, str]]]] = {}
        for (of, kind), filed in self._outside.items():
            if of == tenant:
                levels.setdefault(self.forecast.level_of(kind), []).append(list(filed))
        for level in sorted(levels):
            for _, name in merge(*levels[level]):
                yield self._sets[name]

    def _kind(self, known: WorkingSet) -> tuple[int, int]:
        setup_s = 0.0 if known.name in self.residents else known.longest * self.block_s
        return self.forecast.kind(known.service_s, setup_s)

    def _file(self, known: WorkingSet) -> None:
        known.filed = known.tenant, self._kind(known)
        files = self._inside if known.name in self.residents else self._outside
        insort(files.setdefault(known.filed, []), (known.arrival_s, known.name))

    def _unfile(self, known: WorkingSet) -> None:
        if known.filed is None:
            return
        files = self._inside if known.name in self.residents else self._outside
        filed = files[known.filed]
        del filed[bisect_left(filed, (known.arrival_s, known.name))]
        if not filed:
            del files[known.filed]
        known.filed = None

    def _attain(self, known: WorkingSet, service_s: float) -> None:
        self.forecast.serve(known.service_s, service_s)
        known.service_s = max(known.service_s, service_s)


def _most(returned: deque[bool], otherwise: bool) -> bool:
    """Whether most of these called again. otherwise: the answer while few are known."""
    if len(returned) < _FEWEST_GAPS:
        return otherwise
    return sum(returned) >= _RETURNING * len(returned)
