"""The pipelines that both runners run, and what must come out of them.

Each is a function of a pipeline and a number of elements, and returns a collection of one value, a tuple of integers
or an integer. `expected` has that value in closed form. The elements are the numbers below n, made by four sources.
"""

# No "from __future__ import annotations" here: Beam reads these annotations, to choose coders, and not as strings.

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter

SOURCES: Final = 4
KEYS: Final = 1000
SMALL: Final = 100
"""Elements of the pipeline of ten stages, whatever the number of elements of the others is."""
SMALL_KEYS: Final = 10


def source_range(source: int, elements: int) -> range:
    """The numbers that one of the sources makes."""
    return range(source * elements // SOURCES, (source + 1) * elements // SOURCES)


def table() -> dict[int, int]:
    """The content of the side input."""
    return {key: 7 * key + 1 for key in range(KEYS)}


def scaled(x: int) -> int:
    return 3 * x


def plus_one(x: int) -> int:
    return x + 1


def is_not_by_five(x: int) -> bool:
    return x % 5 != 0


def is_even(x: int) -> bool:
    return x % 2 == 0


def halved(x: int) -> int:
    return x // 2


def keyed(x: int) -> tuple[int, int]:
    return x % KEYS, x


def digest_of_sum(item: tuple[int, int]) -> tuple[int, int, int]:
    """Digests one key's sum: adding these up tells a wrong sum, a missing key and sums that changed places."""
    key, total = item
    return 1, total, (key + 1) * total


def digest_of_group(item: tuple[int, Iterable[int]]) -> tuple[int, int, int, int]:
    """Digests one key's values."""
    key, values = item
    count = total = 0
    for value in values:
        count += 1
        total += value
    return 1, count, total, (key + 1) * total


def joined(x: int, entries: dict[int, int]) -> int:
    return x * entries[x % KEYS]


def added_up(rows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Tuples, added up place by place."""
    return tuple(map(sum, zip(*rows, strict=True)))


class Numbers(beam.DoFn):
    """A source: its part of the numbers below `elements`."""

    def __init__(self, elements: int) -> None:
        self._elements = elements

    def process(self, source: int) -> Iterator[int]:
        yield from source_range(source, self._elements)


class CountAndSum(beam.CombineFn):
    """The number of elements and their sum."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[int, int], x: int) -> tuple[int, int]:
        count, total = accumulator
        return count + 1, total + x

    def merge_accumulators(self, accumulators: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        return added_up(accumulators)

    def extract_output(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator


def numbers(pipeline: Any, elements: int) -> Any:
    """The numbers below `elements`, from four sources that a shuffle has spread."""
    sources = pipeline | "Sources" >> beam.Create(range(SOURCES)) | beam.Reshuffle()
    return sources | "Numbers" >> beam.ParDo(Numbers(elements)).with_output_types(int)


def pardo(pipeline: Any, elements: int) -> Any:
    """Three maps and two filters in a chain, then one lifted combine of everything."""
    return (
        numbers(pipeline, elements)
        | beam.Map(scaled)
        | beam.Map(plus_one)
        | beam.Filter(is_not_by_five)
        | beam.Filter(is_even)
        | beam.Map(halved)
        | beam.CombineGlobally(CountAndSum()).without_defaults()
    )


def combine(pipeline: Any, elements: int) -> Any:
    """A sum for each of 1,000 keys, lifted: added up before the shuffle."""
    return (
        numbers(pipeline, elements)
        | beam.Map(keyed)
        | beam.CombinePerKey(sum)
        | beam.Map(digest_of_sum)
        | beam.CombineGlobally(added_up).without_defaults()
    )


def group(pipeline: Any, elements: int) -> Any:
    """All elements through the shuffle by 1,000 keys; each key's values are counted and added up behind it."""
    return (
        numbers(pipeline, elements)
        | beam.Map(keyed)
        | beam.GroupByKey()
        | beam.Map(digest_of_group)
        | beam.CombineGlobally(added_up).without_defaults()
    )


def join(pipeline: Any, elements: int) -> Any:
    """Each element with the entry for its key in a side input, a dictionary of 1,000 entries, then a lifted sum."""
    entries = pipeline | "Table" >> beam.Create(list(table().items()))
    return (
        numbers(pipeline, elements)
        | beam.Map(joined, AsDict(entries))
        | beam.CombineGlobally(CountAndSum()).without_defaults()
    )


def small_keyed(x: int) -> tuple[int, int]:
    return x % SMALL_KEYS, x


def group_plus_one(item: tuple[int, Iterable[int]]) -> list[int]:
    return [x + 1 for x in item[1]]


def plus_number_of(x: int, others: Iterable[int]) -> int:
    return x + sum(1 for _ in others)


def value_of(item: tuple[int, int]) -> int:
    return item[1]


def stages(pipeline: Any, elements: int) -> Any:
    """Ten small stages, as Beam's optimiser fuses them, over 100 elements and 10 keys, whatever `elements` says.

    1 makes the elements; 2 and 4 take them out of a GroupByKey, 3 and 5 out of a Reshuffle; 6 has the output of 5 as
    its input and its side input; 7 comes behind a GroupByKey, 8 behind a Reshuffle, 9 behind a CombinePerKey that 8
    has begun, 10 behind a CombineGlobally that 9 has begun. Each of 1 to 5, 7 and 8 adds one to each element.
    """
    made = pipeline | "Make" >> beam.Create(range(SMALL), reshuffle=False) | "Step 1" >> beam.Map(plus_one)
    fifth = _reshuffled(_grouped(_reshuffled(_grouped(made, 2), 3), 4), 5)
    sixth = fifth | "Step 6" >> beam.Map(plus_number_of, AsIter(fifth))
    return (
        _reshuffled(_grouped(sixth, 7), 8)
        | "Key 9" >> beam.Map(small_keyed)
        | beam.CombinePerKey(sum)
        | beam.Map(value_of)
        | beam.CombineGlobally(CountAndSum()).without_defaults()
    )


def _grouped(elements: Any, step: int) -> Any:
    groups = elements | f"Key {step}" >> beam.Map(small_keyed) | f"Group {step}" >> beam.GroupByKey()
    return groups | f"Step {step}" >> beam.FlatMap(group_plus_one)


def _reshuffled(elements: Any, step: int) -> Any:
    return elements | f"Reshuffle {step}" >> beam.Reshuffle() | f"Step {step}" >> beam.Map(plus_one)


BUILD: Final[dict[str, Callable[[Any, int], Any]]] = {
    "pardo": pardo,
    "combine": combine,
    "group": group,
    "join": join,
    "stages": stages,
}


def expected(name: str, elements: int) -> list[int]:
    """Returns the right value of a pipeline, as JSON has it."""
    by_key = [(key, *_count_and_sum_of_key(key, elements)) for key in range(min(KEYS, elements))]
    entries = table()
    if name == "pardo":
        # The even ones of y = 3 x + 1 have an odd x = 2 j + 1, so y / 2 = 3 j + 2; 3 j + 2 is by five if j = 5 i + 1.
        odd = elements // 2
        by_five = (odd + 3) // 5
        total = (3 * odd * (odd - 1) // 2 + 2 * odd) - (15 * by_five * (by_five - 1) // 2 + 5 * by_five)
        return [odd - by_five, total]
    if name == "combine":
        return [len(by_key), sum(total for _, _, total in by_key), sum((key + 1) * total for key, _, total in by_key)]
    if name == "group":
        return [
            len(by_key),
            elements,
            sum(total for _, _, total in by_key),
            sum((key + 1) * total for key, _, total in by_key),
        ]
    if name == "join":
        return [elements, sum(entries[key] * total for key, _, total in by_key)]
    if name == "stages":
        return [SMALL_KEYS, SMALL * (SMALL - 1) // 2 + 7 * SMALL + SMALL * SMALL]
    raise ValueError(f"no pipeline has the name {name!r}")


def _count_and_sum_of_key(key: int, elements: int) -> tuple[int, int]:
    """Counts and adds the numbers below `elements` that leave `key` when divided by `KEYS`."""
    count = (elements - key + KEYS - 1) // KEYS
    return count, key * count + KEYS * count * (count - 1) // 2
