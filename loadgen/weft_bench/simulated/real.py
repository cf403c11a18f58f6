"""The engine on vLLM's own scheduler with our plugin, as the simulator in virtual time has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand
from weft_engine.orders import build_order
from weft_engine.wire import CallReport

from weft_bench.costs.presets import EngineShape
from weft_bench.simulated import tokens
from weft_bench.simulated.engine import Happened, Work
from weft_bench.virtual.engine import EngineSettings
from weft_bench.virtual.replica import Replica


class RealScheduler:
    """The replica of the simulator in virtual time behind the protocol. Steps are never put
    together, so that each token comes when it would; every call's tags count."""

    def __init__(self, shape: EngineShape, policy: str, options: Mapping[str, Any]) -> None:
        self._shape = shape
        self._options = options
        self._replica = Replica("simulated", shape, EngineSettings(policy, options))
        self._given: dict[str, int] = {}

    @property
    def busy(self) -> bool:
        """Whether a step is on its way."""
        return self._replica.busy

    def fits(self, count: int) -> bool:
        """See Engine."""
        shape = self._shape
        return count <= min(shape.context, (shape.kv_blocks - 1) * shape.block_tokens)

    def add(self, work: Work, now: float) -> None:
        """See Engine."""
        numbers = list(tokens.ids(work.text[: work.prompt_tokens * tokens.TOKEN_BYTES]))
        prompt = self._replica.prompt_of(numbers)
        self._replica.add(work.context, prompt, tokens.FIRST_WORD, work.output_tokens, now)
        self._given[work.context.call] = 0

    def start(self, now: float, until: float) -> float | None:
        """See Engine."""
        self._replica.scheduler.quiet = False
        return self._replica.start(now)

    def finish(self, now: float) -> Happened:
        """See Engine."""
        requests = self._replica.scheduler.requests
        before = list(self._given)
        reports = self._replica.finish(now).reports
        happened = Happened(reports=reports)
        for report in reports:
            happened.tokens[report.call] = report.output_tokens - self._given.pop(report.call)
        for call in before:
            if call in self._given:
                fresh = len(requests[call].output_token_ids) - self._given[call]
                if fresh:
                    happened.tokens[call] = fresh
                    self._given[call] += fresh
        return happened

    def abort(self, call: str, now: float) -> CallReport | None:
        """See Engine."""
        self._given.pop(call, None)
        return self._replica.abort(call, now)

    def check(self, policy: str) -> None:
        """See Engine."""
        build_order(policy, self._options)

    def switch(self, policy: str, now: float) -> None:
        """See Engine."""
        self._obey(Command(policy=policy), now)

    def reset_cache(self) -> None:
        """See Engine."""
        self._obey(Command(reset_cache=True), self._replica.now)

    def advise(self, advice: KvCommand) -> None:
        """See Engine."""
        self._obey(Command(kv=advice), self._replica.now)

    def _obey(self, command: Command, now: float) -> None:
        self._replica.now = now
        self._replica.scheduler.obey(command)

    def state(self) -> dict[str, Any]:
        """See Engine."""
        return self._replica.scheduler.state()

    def violations(self) -> list[str]:
        """See Engine."""
        return self._replica.scheduler.violations()
