"""`SaltedCombinePerKey`: a combine by key in two phases, of which the first is for hot keys only."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder, registry
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    Repeatedly,
)
from apache_beam.transforms.window import FixedWindows, GlobalWindows
from apache_beam.typehints import Tuple
from apache_beam.typehints.typehints import TupleConstraint

from rmqio.errors import LocalError, WireError

# The input of the second phase of a salted combine: values, and accumulators of the first phase. And its coder.

Part = tuple[bool, Any]
"""Whether it is an accumulator, and the accumulator or the value."""


class PartConstraint(TupleConstraint):
    """Beam's type of a `Part`, which knows the coders of both."""

    def __init__(self, value_coder: Coder, accumulator_coder: Coder) -> None:
        super().__init__((bool, Any))
        self.coders = (value_coder, accumulator_coder)


class PartCoder(Coder):
    """A byte that tells which it is, and the bytes of its coder."""

    def __init__(self, value_coder: Coder, accumulator_coder: Coder) -> None:
        self.coders = (value_coder, accumulator_coder)

    @classmethod
    def from_type_hint(cls, typehint: Any, registry: Any) -> PartCoder:
        return cls(*typehint.coders)

    def to_type_hint(self) -> Any:
        return PartConstraint(*self.coders)

    def encode(self, value: Part) -> bytes:
        is_accumulator, content = value
        encoded: bytes = self.coders[is_accumulator].encode(content)
        return (b"\x01" if is_accumulator else b"\x00") + encoded

    def decode(self, encoded: bytes) -> Part:
        if encoded[:1] not in (b"\x00", b"\x01"):
            raise WireError(f"these {len(encoded)} bytes are no part of a salted combine")
        is_accumulator = encoded[0] == 1
        return is_accumulator, self.coders[is_accumulator].decode(encoded[1:])

    def is_deterministic(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.coders == other.coders

    def __hash__(self) -> int:
        return hash((type(self), self.coders))


registry.register_coder(PartConstraint, PartCoder)


# In which windows and with which triggers two phases give what one gives.

_INSTEAD = "use CombinePerKey here"


def needs_discarding(windowing: Any) -> bool:
    """Return whether the first phase must discard what it has fired, although the input accumulates.

    Raises `LocalError` where the results could differ from those of one phase:
    - windows that merge: parts of a key would merge by themselves, into other windows;
    - triggers on counts, which would count parts; and those that end, after which a part is lost and its key is not;
    - panes that accumulate, in windows that cannot be assigned again.
    """
    windowfn, trigger = windowing.windowfn, windowing.triggerfn
    if windowfn.is_merging():
        raise LocalError(
            f"SaltedCombinePerKey in {type(windowfn).__name__}: these windows merge by key, and the parts of a key "
            f"would merge into other windows; {_INSTEAD}"
        )
    if not _is_the_same(trigger):
        raise LocalError(
            f"SaltedCombinePerKey with the trigger {trigger!r}: in two phases it would fire for other elements than in "
            f"one. DefaultTrigger, AfterWatermark and Repeatedly(AfterProcessingTime) are the same; {_INSTEAD}"
        )
    if windowing.accumulation_mode != AccumulationMode.ACCUMULATING or _fires_once(windowing):
        return False
    if type(windowfn) not in (FixedWindows, GlobalWindows):
        raise LocalError(
            f"SaltedCombinePerKey in {type(windowfn).__name__} with panes that accumulate: the first phase must "
            f"discard, for which elements need windows again, and these would become others. Discard, or {_INSTEAD}"
        )
    return True


def _is_the_same(trigger: Any) -> bool:
    if isinstance(trigger, AfterWatermark):
        late = trigger.late
        one_by_one = isinstance(late, Repeatedly) and late.underlying == AfterCount(1)
        return (trigger.early is None or _is_by_clock(trigger.early)) and (
            late is None or one_by_one or _is_by_clock(late)
        )
    return isinstance(trigger, DefaultTrigger) or _is_by_clock(trigger)


def _is_by_clock(trigger: Any) -> bool:
    return isinstance(trigger, Repeatedly) and isinstance(trigger.underlying, AfterProcessingTime)


def _fires_once(windowing: Any) -> bool:
    trigger = windowing.triggerfn
    is_plain = isinstance(trigger, DefaultTrigger) or (
        isinstance(trigger, AfterWatermark) and trigger.early is None and trigger.late is None
    )
    return is_plain and not windowing.allowed_lateness


# The heaviest keys of a stream, in memory that does not grow: the sketch of Misra and Gries.


class Heavy(NamedTuple):
    """A key and between which two numbers its count lies."""

    key: Hashable
    at_least: int
    at_most: int


class HeavyKeys:
    """Counts keys. Every key with more than `total / capacity` elements is among the counted ones.

    A count is never too high, and too low by at most `error`, which is at most `total / capacity`.

    Args:
      capacity: keys that are kept; up to twice as many are in memory.
    """

    __slots__ = ("_capacity", "counts", "error", "total")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.counts: dict[Hashable, int] = {}
        self.error = 0
        self.total = 0

    def add(self, key: Hashable, count: int = 1) -> int:
        """Count a key, and return its count so far. Raises `TypeError` for a key that cannot be in a dict."""
        counts = self.counts
        found = counts.get(key, 0) + count
        counts[key] = found
        self.total += count
        if found == count and len(counts) > 2 * self._capacity:
            self._prune()
        return found

    def _prune(self) -> None:
        """Take from all keys what the heaviest that has to go has: so often, capacity + 1 different keys came."""
        counts = self.counts
        less = sorted(counts.values(), reverse=True)[self._capacity]
        self.counts = {key: count - less for key, count in counts.items() if count > less}
        self.error += less

    def merge(self, other: HeavyKeys) -> None:
        """Add another sketch of the same capacity; the errors add up, too."""
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        self.total += other.total
        self.error += other.error
        if len(self.counts) > 2 * self._capacity:
            self._prune()

    def halve(self) -> None:
        """Let the past count half, so that a key that is no longer hot is forgotten."""
        self.counts = {key: count >> 1 for key, count in self.counts.items() if count > 1}
        self.total >>= 1
        self.error >>= 1

    def heaviest(self, number: int) -> list[Heavy]:
        """Return the heaviest keys, the first one first."""
        found = sorted(self.counts.items(), key=lambda item: -item[1])[:number]
        return [Heavy(key, count, count + self.error) for key, count in found]


_HOT: Final = "hot"
_FIRST_HOT: Final = 200
"""Elements of a key before it can be hot: fewer are not worth a second shuffle."""
_FORGET_EVERY: Final = 1 << 17
_LOOK_EVERY: Final = 256
_RUN: Final = 1_000
"""Elements of hot keys that get one salt: what is combined within a bundle then stays together."""


class SaltedCombinePerKey(beam.PTransform):
    """`CombinePerKey` that spreads hot keys over several workers.

        totals = amounts | SaltedCombinePerKey(sum)

    A sketch counts the keys that come by, in each worker. Values of a key that has more than `hot_share` of them go to
    one of `fanout` parts of the key, which are combined separately, and then with one another and with all other
    values. Other keys are shuffled once.

    The results are those of `CombinePerKey` with the same function: in bounded pipelines and in streams, for all
    windows and triggers with which two phases can give them; others are refused when it is applied. The clock decides
    which panes fire early or late, as in one phase.

    It helps if values of a key are many, or cost much to combine; the last phase still has one accumulator for each
    part of a key. A runner that combines before the shuffle does the same for small accumulators.

    Args:
      fn: a `CombineFn`, or a callable as for `CombinePerKey`. Like there, the order of values is not kept.
      fanout: how many parts a hot key has.
      hot_share: the share of the elements of a worker from which a key is hot, e.g. 0.02.

    Raises `LocalError` when it is built or applied.
    """

    def __init__(
        self,
        fn: beam.CombineFn | Callable[[Iterable[Any]], Any],
        *,
        fanout: int = 16,
        hot_share: float = 0.02,
    ) -> None:
        super().__init__()
        if not isinstance(fn, beam.CombineFn) and not callable(fn):
            raise LocalError(f"fn is {fn!r}; it must be a CombineFn, or a callable such as sum")
        if not isinstance(fanout, int) or isinstance(fanout, bool) or not 2 <= fanout <= 4096:
            raise LocalError(f"fanout is {fanout!r}; it must be a whole number from 2 to 4096")
        if not isinstance(hot_share, (int, float)) or isinstance(hot_share, bool) or not 0.0001 <= hot_share < 1:
            raise LocalError(f"hot_share is {hot_share!r}; it must be a number from 0.0001 to less than 1")
        self._fn = beam.CombineFn.maybe_from_callable(fn)
        self._fanout = fanout
        self._hot_share = hot_share

    def expand(self, pairs: Any) -> Any:
        discards = needs_discarding(pairs.windowing)
        types = getattr(pairs.element_type, "tuple_types", (Any, Any))
        if len(types) != 2:
            raise LocalError(f"SaltedCombinePerKey needs pairs of key and value, and elements are {pairs.element_type}")
        key_type, value_type = types
        part = PartConstraint(registry.get_coder(value_type), self._fn.get_accumulator_coder())
        routed = pairs | "Find hot keys" >> beam.ParDo(_RouteFn(self._fanout, self._hot_share)).with_outputs(
            _HOT, main="cold"
        )
        hot, cold = routed[_HOT], routed["cold"]
        hot.element_type = Tuple[Tuple[key_type, int], value_type]
        cold.element_type = Tuple[key_type, part]
        if discards:
            windowing = pairs.windowing
            hot = hot | "Discard" >> beam.WindowInto(
                windowing.windowfn,
                trigger=windowing.triggerfn,
                accumulation_mode=AccumulationMode.DISCARDING,
                timestamp_combiner=windowing.timestamp_combiner,
                allowed_lateness=windowing.allowed_lateness,
            )
        parts = (
            hot
            | "Combine parts" >> beam.CombinePerKey(_PartsFn(self._fn))
            | "Join parts" >> beam.Map(_without_salt).with_output_types(Tuple[key_type, part])
        )
        # The windows and triggers of the first one apply to what comes out: those of the input.
        both = (cold, parts) | "Both" >> beam.Flatten()
        both.element_type = Tuple[key_type, part]
        return both | "Combine" >> beam.CombinePerKey(_WholeFn(self._fn))

    def display_data(self) -> dict[str, Any]:
        shown = {"fn": type(self._fn).__qualname__, "fanout": self._fanout, "hot_share": self._hot_share}
        return {name: DisplayDataItem(value).drop_if_none() for name, value in shown.items()}


class _RouteFn(beam.DoFn):
    """Tells hot keys from others. An element may go either way: the second phase brings all of a key together."""

    def __init__(self, fanout: int, hot_share: float) -> None:
        self._fanout = fanout
        self._hot_share = hot_share
        self._begin()

    def setup(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._sketch = HeavyKeys(max(64, int(4 / self._hot_share)))
        self._threshold = _FIRST_HOT
        self._salt = 0
        self._left = 0
        self._until_look = _LOOK_EVERY

    def start_bundle(self) -> None:
        # Workers that begin at the same salt would all send their first run to the same part.
        self._salt, self._left = random.randrange(self._fanout), _RUN

    def process(self, element: tuple[Any, Any]) -> Iterator[Any]:
        key, value = element
        try:
            count = self._sketch.add(key)
        except TypeError:  # a key that cannot be in a dict
            count = 0
        self._until_look -= 1
        if not self._until_look:
            self._look()
        if count < self._threshold:
            yield key, (False, value)
            return
        self._left -= 1
        if self._left < 0:
            self._salt, self._left = (self._salt + 1) % self._fanout, _RUN
        yield beam.pvalue.TaggedOutput(_HOT, ((key, self._salt), value))

    def _look(self) -> None:
        sketch = self._sketch
        if sketch.total > _FORGET_EVERY:
            sketch.halve()
        self._threshold = max(_FIRST_HOT, int(sketch.total * self._hot_share))
        self._until_look = _LOOK_EVERY


def _without_salt(element: tuple[tuple[Any, int], Part]) -> tuple[Any, Part]:
    (key, _), part = element
    return key, part


class _Inner(beam.CombineFn):
    """A function on top of the user's."""

    def __init__(self, fn: beam.CombineFn) -> None:
        self._fn = fn

    def setup(self) -> None:
        self._fn.setup()

    def create_accumulator(self) -> Any:
        return self._fn.create_accumulator()

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return self._fn.add_input(accumulator, element)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        return self._fn.merge_accumulators(accumulators)

    def compact(self, accumulator: Any) -> Any:
        return self._fn.compact(accumulator)

    def extract_output(self, accumulator: Any) -> Any:
        return self._fn.extract_output(accumulator)

    def teardown(self) -> None:
        self._fn.teardown()

    def get_accumulator_coder(self) -> Any:
        return self._fn.get_accumulator_coder()


class _PartsFn(_Inner):
    """Combines the values of a part of a key; its result is the accumulator."""

    def extract_output(self, accumulator: Any) -> Part:
        return True, accumulator


class _WholeFn(_Inner):
    """Combines values, and accumulators of parts."""

    def add_input(self, accumulator: Any, element: Part) -> Any:
        is_accumulator, content = element
        if is_accumulator:
            return self._fn.merge_accumulators([accumulator, content])
        return self._fn.add_input(accumulator, content)
