"""The unique ids of messages that are sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Final, overload

_process = object()
"""A different object in each process."""


def _forked() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_forked)

_BLOCK: Final = 256
_FEW: Final = 32
"""Below this number, single ids are cheaper than a range: the rest of its last block is lost."""
_PER_RANGE: Final = 4096
_RANGES_BEGIN: Final = 1 << 47
"""Ranges and blocks are numbered apart, so that a range needs no lock to consist of neighbours."""
_LAST_DIGITS: Final = tuple(f"{number:02X}" for number in range(_BLOCK))


class ConsecutiveIds(Sequence[str]):
    """Ids that differ in their last 12 digits, which count up: they are written only when somebody looks.

    Args:
      prefix: what they all begin with; 20 digits.
      first: the number of the first.
      length: how many they are.
    """

    __slots__ = ("_first", "_length", "_prefix")

    def __init__(self, prefix: str, first: int, length: int) -> None:
        self._prefix = prefix
        self._first = first
        self._length = length

    def __repr__(self) -> str:
        return f"<{self._length} ids from {self.first}>"

    @property
    def first(self) -> str:
        """The first id, also if there is none."""
        return f"{self._prefix}{self._first:012X}"

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        begin, end = self._first, self._first + self._length
        for block in range(begin // _BLOCK, -(-end // _BLOCK)):
            known = f"{self._prefix}{block:010X}"
            least, most = max(begin - block * _BLOCK, 0), min(end - block * _BLOCK, _BLOCK)
            yield from [known + digits for digits in _LAST_DIGITS[least:most]]

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        numbers = range(self._first, self._first + self._length)[at]
        if isinstance(numbers, int):
            return f"{self._prefix}{numbers:012X}"
        return [f"{self._prefix}{number:012X}" for number in numbers]


class _Numbers:
    """A process' numbers. One object, so that it is replaced at once after a fork."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.blocks = map((prefix + "%010X").__mod__, count())
        self.ranges = count(_RANGES_BEGIN, _PER_RANGE)
        self.process = _process


class MessageIds:
    """Generates unique message ids: 32 upper-case hexadecimal digits, from 80 random bits and a counter.

    Threads can share it. A forked child and a pickled copy draw their own random bits.
    """

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._ready: list[str] = []
        self._numbers = self._restart()

    def _restart(self) -> _Numbers:
        self._ready = []
        self._numbers = numbers = _Numbers(self._entropy(10).hex().upper())
        return numbers

    def __iter__(self) -> MessageIds:
        return self

    def __next__(self) -> str:
        numbers = self._numbers
        if numbers.process is not _process:
            numbers = self._restart()
        try:
            return self._ready.pop()
        except IndexError:
            # Generated 256 at a time, in half the time. Threads that get here at once generate a block each.
            block = next(numbers.blocks)
            ready = [block + digits for digits in reversed(_LAST_DIGITS)]
            first = ready.pop()
            self._ready = ready
            return first

    def take(self, number: int) -> Sequence[str]:
        """Return `number` ids; each costs less than from `next`. They need not be in ascending order."""
        if number < _FEW:
            return list(islice(self, number))
        numbers = self._numbers
        if numbers.process is not _process:
            numbers = self._restart()
        if number <= _PER_RANGE:
            return ConsecutiveIds(numbers.prefix, next(numbers.ranges), number)
        ids: list[str] = []
        for begin in range(0, number, _PER_RANGE):
            ids += ConsecutiveIds(numbers.prefix, next(numbers.ranges), min(_PER_RANGE, number - begin))
        return ids

    def __reduce__(self) -> tuple[object, ...]:
        return MessageIds, (self._entropy,)
