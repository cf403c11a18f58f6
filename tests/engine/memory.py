"""A worker's KV memory in symbols: what each step reads must be what its context wrote.

Stands in for the model runner. It keeps block tables as the runner does, from what the scheduler
sends and nothing else, and carries out the steps' swap plans and writes in the order in which a
stream does: copies out, copies in, then the forward pass. The content of a position is a digest of
all tokens up to it, so a block that was lost, overwritten too early or restored to a wrong place is
found at the first step that reads it, with async scheduling too.
"""

from __future__ import annotations

from typing import Any

from harness import BLOCK, Engine


class KVMemory:
    """Watches an engine of the harness. `read` and `brought_back` count positions and blocks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._device: dict[int, list[int | None]] = {}
        self._host: dict[int, list[int | None]] = {}
        self._tables: dict[str, list[int]] = {}
        self.read = 0
        self.brought_back = 0
        schedule = engine.scheduler.schedule

        def watched(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self._run(output)
            return output

        engine.scheduler.schedule = watched  # type: ignore[method-assign]

    def _run(self, output: Any) -> None:
        plan = output.kv_connector_metadata
        if plan is not None:
            for block, slot in plan.out:
                self._host[slot] = list(self._block(block))
        self._load()
        computed = self._take_tables(output)
        if plan is not None:
            for block, slot in plan.back:
                self._device[block] = list(self._host[slot])
                self.brought_back += 1
        # Every layer writes the keys and values of the whole batch before any are read: vLLM lets
        # a sequence share blocks that another computes in the same step.
        counts = output.num_scheduled_tokens
        for name, start in computed.items():
            self._write(name, start, counts[name])
        for name, start in computed.items():
            self._check(name, start + counts[name])

    def _load(self) -> None:
        """Copies in of another connector."""

    def _take_tables(self, output: Any) -> dict[str, int]:
        computed = {}
        for new in output.scheduled_new_reqs:
            self._tables[new.req_id] = list(new.block_ids[0])
            computed[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, blocks, start in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            if name in cached.resumed_req_ids:
                self._tables[name] = []
            self._tables[name] += [] if blocks is None else blocks[0]
            computed[name] = start
        return computed

    def _check(self, name: str, end: int) -> None:
        wanted = self._contents(name, end)
        held = [self._block(b)[i] for b in self._tables[name] for i in range(BLOCK)][:end]
        wrong = [p for p, (a, b) in enumerate(zip(wanted, held, strict=True)) if a != b]
        assert not wrong, f"{name} reads {len(wrong)} of {end} wrong positions, first {wrong[0]}"
        self.read += end

    def _write(self, name: str, start: int, count: int) -> None:
        contents = self._contents(name, start + count)
        for position in range(start, start + count):
            block = self._block(self._tables[name][position // BLOCK])
            block[position % BLOCK] = contents[position]

    def _block(self, number: int) -> list[int | None]:
        return self._device.setdefault(number, [None] * BLOCK)

    def _contents(self, name: str, end: int) -> list[int]:
        request = self._engine.scheduler.requests[name]
        prompt = list(request.prompt_token_ids or [])
        # The harness generates token 7 and no other.
        tokens = (prompt + [7] * max(0, end - len(prompt)))[:end]
        digests, digest = [], hash(request.cache_salt)
        for token in tokens:
            digest = hash((digest, token))
            digests.append(digest)
        return digests
