"""Origin of a cached prefix: other requests, earlier turns of the request, or a prefill.

Sutradhara 5.4.3 separates hits on other requests' blocks from hits on the request's own. A token
counts as the request's own if an earlier prompt or answer of the request began with it, even if
another request had also computed it. Tokens prefilled while tools ran count separately, because
they were computed for the turn that finds them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weft_bench.workloads.schema import Part

if TYPE_CHECKING:
    from weft_bench.virtual.records import PrefillRecord, Simulation
    from weft_bench.workloads.cutting import ReadyProgram

# Few turns are deeper; they are counted together.
DEPTHS: Final = ("0", "1", "2", "3+")


@dataclass(slots=True)
class Reuse:
    """Prompt tokens of turns and cached ones by origin: other requests, own earlier turns,
    prefills.
    """

    prompt: int = 0
    others: int = 0
    own: int = 0
    ahead: int = 0

    def add(self, cached: int, prompt: int, own: int, prefill: PrefillRecord | None) -> None:
        """Count a turn. own: its tokens that earlier turns also began with."""
        before = cached if prefill is None else min(cached, prefill.cached_tokens)
        self.prompt += prompt
        self.own += min(before, own)
        self.others += before - min(before, own)
        self.ahead += cached - before


def depth_figures(programs: Iterable[ReadyProgram], found: Simulation) -> Mapping[str, float]:
    """Return shares of prompt tokens by the depth of a turn in its request.

    The keys are `others_0`, `own_0`, `ahead_0` and so on, `others`, `own`, `ahead` for all turns,
    and `hit_rate` for their sum. Counts only messages with parts, which all synthetic workloads
    have. Depths without a turn are left out.
    """
    calls = {(call.program, call.number): call for call in found.calls}
    prefills = {(one.program, one.number): one for one in found.prefills}
    depths = {name: Reuse() for name in (*(f"_{depth}" for depth in DEPTHS), "")}
    for program in programs:
        seen: list[tuple[Part, ...]] = []
        for number, ready in enumerate(program.calls):
            parts, record = ready.call.parts, calls[program.id, number]
            own = max((common(parts, earlier) for earlier in seen), default=0)
            ahead = prefills.get((program.id, number))
            for one in (depths[f"_{DEPTHS[min(number, len(DEPTHS) - 1)]}"], depths[""]):
                one.add(record.cached_tokens, record.prompt_tokens, own, ahead)
            seen.append((*parts, Part(ready.call.answer, ready.max_tokens, "assistant")))
    figures = {}
    for name, one in depths.items():
        if one.prompt:
            figures[f"others{name}"] = one.others / one.prompt
            figures[f"own{name}"] = one.own / one.prompt
            figures[f"ahead{name}"] = one.ahead / one.prompt
            figures[f"hit_rate{name}"] = (one.others + one.own + one.ahead) / one.prompt
    return figures


def common(one: Sequence[Part], other: Sequence[Part]) -> int:
    """Return the number of tokens in the common prefix of two prompts."""
    tokens = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine.name != theirs.name:
            break
        tokens += min(mine.tokens, theirs.tokens)
        if mine.tokens != theirs.tokens:
            break
    return tokens
