"""A device with streams on the CPU: its work runs late, in any order that the streams allow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Event:
    """The work of a stream up to a point. work: numbers of operations."""

    def __init__(self, work: frozenset[int]) -> None:
        self.work = work


class Stream:
    """Operations in order."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._after: frozenset[int] = frozenset()

    def record_event(self) -> Event:
        return Event(self._after)

    def wait_event(self, event: Event) -> None:
        self._after |= event.work

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def add(self, operation: Callable[[], Any]) -> int:
        """Append an operation and return its number."""
        number = self._device.add(operation, self._after, self)
        self._after = frozenset((number,))
        return number


class Device(TorchFunctionMode):
    """Inside `with`, copies between tensors are operations of the current stream.

    torch: replaces the module of that name in the code under test. Each allocation gets the memory
    of the one before, as if that was freed, unless `record_stream` was called on it. torch does so
    with the memory of a GPU while its work is still to come.
    """

    def __init__(self) -> None:
        self.compute = self.current = Stream(self)
        self.torch = SimpleNamespace(
            uint8=torch.uint8,
            empty=self._allocate,
            cuda=SimpleNamespace(
                Stream=lambda device: Stream(self),
                current_stream=lambda: self.current,
                device=contextlib.nullcontext,
                stream=self._on,
            ),
        )
        self._operations: list[tuple[Callable[[], Any], frozenset[int]]] = []
        self._streams: list[Stream] = []
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._kept: set[int] = set()

    def add(self, operation: Callable[[], Any], after: frozenset[int], stream: Stream) -> int:
        self._operations.append((operation, after))
        self._streams.append(stream)
        return len(self._operations) - 1

    def of(self, stream: Stream) -> set[int]:
        """Return the operations of a stream."""
        return {number for number, each in enumerate(self._streams) if each is stream}

    def needs(self, number: int) -> set[int]:
        """Return the operations that end before this one begins."""
        found: set[int] = set()
        left = {number}
        while left:
            left = set(self._operations[left.pop()][1]) - found | left
            found |= left
        return found

    @property
    def record_stream(self) -> Callable[[torch.Tensor, Stream], None]:
        """A method of tensors."""
        return lambda tensor, stream: self._kept.add(tensor.untyped_storage().data_ptr())

    def keeps(self, tensor: torch.Tensor) -> bool:
        """Whether `record_stream` was called on the tensor's memory."""
        return tensor.untyped_storage().data_ptr() in self._kept

    def run(self, order: Random) -> None:
        """Run all operations in one of their possible orders."""
        waiting = dict(enumerate(self._operations))
        while waiting:
            ready = [n for n, (_, after) in waiting.items() if after.isdisjoint(waiting)]
            operation, _ = waiting.pop(order.choice(ready))
            operation()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.copy_:
            self.current.add(lambda: func(*args, **kwargs))
            return args[0]
        return func(*args, **(kwargs or {}))

    @contextlib.contextmanager
    def _on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def _allocate(self, size: int, **_: Any) -> torch.Tensor:
        if self.keeps(self._memory) or len(self._memory) < size:
            self._memory = torch.zeros(size, dtype=torch.uint8)
        return self._memory[:size]
