"""The queues of an endless read: those that it has found, and those that wait for their broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker

from rmqio.errors import WireError
from rmqio.model import MessageQueue

_BEGAN = "began\t"
_WAITING = "waiting\t"
_AWAY = "away\t"


class Look(NamedTuple):
    """The result of one look of an endless read."""

    starts: Mapping[MessageQueue, int]
    """The new queues, and where each starts."""
    began_ms: int | None
    """When the read began; None: not known yet."""
    waiting: frozenset[MessageQueue] = frozenset()
    """Queues that existed when the read began, but whose broker has not answered since."""
    away: frozenset[MessageQueue] = frozenset()
    """Queues that were found later, and whose broker does not answer."""
    is_waiting: bool = False
    """Whether the broker of any queue does not answer: look again soon."""


class Known(frozenset[MessageQueue]):
    """The restriction of discovery: the queues that have been found so far. It grows and never ends."""

    began_ms: int | None
    """Unix milliseconds of the first look; None: there was none yet, or the state is of an older version."""

    waiting: frozenset[MessageQueue]
    """Queues that the first look saw, but whose broker has not answered since. They are not among the known ones."""

    away: frozenset[MessageQueue]
    """Queues that a later look saw, but whose broker has not answered since. They are not among the known ones."""

    def __new__(
        cls,
        queues: Iterable[MessageQueue] = (),
        began_ms: int | None = None,
        waiting: Iterable[MessageQueue] = (),
        away: Iterable[MessageQueue] = (),
    ) -> Self:
        known = super().__new__(cls, queues)
        known.began_ms, known.waiting, known.away = began_ms, frozenset(waiting), frozenset(away)
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        return Known, (tuple(self), self.began_ms, tuple(self.waiting), tuple(self.away))

    def __bool__(self) -> bool:
        # Beam drops a residual that is false: a discovery that has found nothing yet would end forever.
        return True

    def after(self, found: Look) -> Known:
        """The state after a look."""
        return Known(self | frozenset(found.starts), found.began_ms, found.waiting, found.away)

    @property
    def is_empty(self) -> bool:
        return len(self) == 0


class KnownCoder(Coder):
    """The time of the first look, then one line per queue, sorted. Queues whose broker does not answer are marked."""

    def encode(self, value: Known) -> bytes:
        lines = [] if value.began_ms is None else [f"{_BEGAN}{value.began_ms}"]
        lines += [f"{q.queue_id}\t{q.broker}\t{q.topic}" for q in sorted(value)]
        lines += [f"{_WAITING}{q.queue_id}\t{q.broker}\t{q.topic}" for q in sorted(value.waiting)]
        lines += [f"{_AWAY}{q.queue_id}\t{q.broker}\t{q.topic}" for q in sorted(value.away)]
        return "\n".join(lines).encode()

    def decode(self, encoded: bytes) -> Known:
        lines = [line for line in encoded.decode("utf-8", "replace").split("\n") if line]
        try:
            began_ms = int(lines.pop(0).removeprefix(_BEGAN)) if lines and lines[0].startswith(_BEGAN) else None
            waiting, away = (
                [_queue(line.removeprefix(mark)) for line in lines if line.startswith(mark)]
                for mark in (_WAITING, _AWAY)
            )
            known = [_queue(line) for line in lines if not line.startswith((_WAITING, _AWAY))]
            return Known(known, began_ms, waiting, away)
        except ValueError as error:
            raise WireError(f"not a set of queues: {error}") from error

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return Known


def _queue(line: str) -> MessageQueue:
    number, broker, topic = line.split("\t", 2)
    return MessageQueue(topic, broker, int(number))


class KnownTracker(RestrictionTracker):
    """Claims the state after a look. The residual of a checkpoint is "everything that is not known yet"."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._checkpointed = False

    def current_restriction(self) -> Known:
        return self._known

    def try_claim(self, position: Known) -> bool:
        if self._checkpointed:
            return False
        self._known = position
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[Known, Known] | None:
        if self._checkpointed or fraction_of_remainder > 0:
            return None
        self._checkpointed = True
        return self._known, self._known

    def check_done(self) -> None:
        if not self._checkpointed:
            raise ValueError("discovery of queues ended without a checkpoint")

    def is_bounded(self) -> bool:
        return False

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=float(len(self._known)), remaining=1.0)
