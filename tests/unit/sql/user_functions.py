"""Functions that tests create in SQL: one of each kind and type, right ones and wrong ones."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd  # type: ignore[import-untyped]

from rmqio.sql import udaf, udf, udtf


class Word(NamedTuple):
    word: str
    length: int


@dataclass
class Place:
    city: str
    zip: int | None


calls: list[tuple[Any, ...]] = []


class Panic(BaseException):
    """As libraries in Rust raise it."""


class Silent(Exception):
    """Its text ends the process, or fails."""

    def __str__(self) -> str:
        if self.args:
            sys.exit(*self.args)
        raise RuntimeError("no text")


_ENDS: Mapping[str, BaseException] = {
    "exit": SystemExit(3), "close": GeneratorExit(), "memory": MemoryError(), "ctrl-c": KeyboardInterrupt(),
    "driver": OSError("no answer of postgresql://u:pw1@h/db?password=pw1"),
    "bytes": ValueError(b"Bearer hunter2abc\n"), "header": ValueError("no header rb'Basic aHVudGVyMg==\\n'"),
    "array": ValueError(bytearray(b"Bearer hunter2")), "odbc": OSError("not connected: Server=h;Uid=u;Pwd=hunter2;"),
    "jdbc": OSError("no jdbc:sqlserver://h;user=u;password=hunter2"), "sent": OSError("Authorization: Bearer hunter2"),
    "dict": ValueError({"host": "h", "password": "hunter2"}), "words": ValueError("the password must not be empty"),
    "braces": OSError("no login: DRIVER={X};UID=u;PWD={hunter2}"), "pair": RuntimeError(("password", "hunter2")),
    "command": RuntimeError(f"{['psql', '--password', 'hunter2']} returned 1"), "names": KeyError("'password', 'user'"),
    "cancel": asyncio.CancelledError("too late"), "panic": Panic("at the disco"), "silent": Silent(),
    "leaving": Silent(4), "group": BaseExceptionGroup("all", [SystemExit(5)]),
}  # fmt: skip


def clean(text: str, keep: int | None = None) -> str:
    calls.append((text, keep))
    if text == "bad":
        raise ValueError("no such\ntext")
    if text in _ENDS:
        raise _ENDS[text]
    return text.strip().lower()[:keep]


def known(text: str | None) -> str:
    return "nothing" if text is None else text


def of_all(first: int, *others: int) -> int:
    return first + sum(others)


def shares(total: float, parts: list[int | None], names: dict[str, int]) -> list[float]:
    parts.append(len(names))  # it has its own
    names["more"] = 1
    return [total / each for each in parts if each]


def next_day(day: dt.date, at: dt.time, moment: dt.datetime) -> dt.datetime:
    assert dt.datetime.combine(day, at) <= moment
    return moment + dt.timedelta(days=1)


def moved(place: Place, word: Word) -> Place:
    assert isinstance(place, Place)
    assert isinstance(word, Word)
    return Place(place.city + word.word, None if place.zip is None else place.zip + word.length)


def tripled(amount: Decimal) -> Decimal:
    return amount * 3


def same_int(value: int) -> int:
    return value


def same_text(value: str) -> str:
    return value


def same_float(value: float) -> float:
    return value


def same_truth(value: bool) -> bool:
    return value


def same_bytes(value: bytes) -> bytes:
    return value


def same_decimal(value: Decimal) -> Decimal:
    return value


def same_date(value: dt.date) -> dt.date:
    return value


def same_time(value: dt.time) -> dt.time:
    return value


def same_moment(value: dt.datetime) -> dt.datetime:
    return value


def same_list(value: list[list[int]]) -> list[list[int]]:
    return value


def same_map(value: dict[str, dt.date]) -> dict[str, dt.date]:
    return value


def same_row(value: Place) -> Place:
    return value


def same_tuple(value: tuple[int, str]) -> tuple[int, str]:
    return value


@udf(input_types=["TIMESTAMP_LTZ(3)"], result_type="TIMESTAMP_LTZ(3)")
def same_instant(value: dt.datetime) -> dt.datetime:
    assert value.tzinfo is dt.UTC
    return value


@udf(input_types=["DECIMAL(10, 2)", "INT"], result_type="DECIMAL(10, 2)", deterministic=True)
def net(amount, percent):  # type: ignore[no-untyped-def]  # the decorator says it
    calls.append((amount, percent))
    return None if amount is None else amount * 100 / (100 + percent)


def lies(value: int) -> str:
    return {0: 5, 1: None, 2: b"x", 4: "\u00e9\ud800"}[value]  # type: ignore[return-value]


def lies_within(value: int) -> list[dict[str, Place]]:
    return [[{"\udfff": Place("a", 1)}], [{"a": Place("a", 1)}, {"b": Place("\ud800", 1)}]][value]


def at_no_time(value: int) -> dt.datetime:
    return [pd.NaT, pd.NA][value]  # type: ignore[no-any-return]


def endless(value: int) -> Decimal:
    return Decimal("Infinity")


def too_large(value: int) -> int:
    return 1 << value


# ---- several rows ---------------------------------------------------------------------------------------------------


def words(text: str) -> Iterator[Word]:
    for each in text.split():
        yield Word(each, len(each))
        if each == "bad":
            raise ValueError("no such word")
        if each == "exit":
            sys.exit("so long")
        if each in _ENDS:
            raise _ENDS[each]


def letters(text: str | None, count: int = 2) -> Iterable[str]:
    return list(text or "?")[:count]


def pairs(numbers: list[int]) -> Iterator[tuple[int, str]]:
    return ((each, str(each)) for each in numbers)


@udtf(result_types=["INT", "STRING"], names=["n", "text"])
def counted(upto: int):  # type: ignore[no-untyped-def]  # the decorator says it
    return [(n, str(n)) for n in range(upto)]


def wrong_rows(value: int) -> Iterator[tuple[int, str]]:
    yield from [[(1, "x"), (2,)], [(1, 2)], "ab", 7, [(1, "\ud800")]][value]  # type: ignore[misc]


# ---- aggregates -----------------------------------------------------------------------------------------------------


class Longest:
    """Flink's methods; the accumulator is changed in place."""

    def create_accumulator(self) -> list[str]:
        return []

    def accumulate(self, accumulator: list[str], word: str) -> None:
        if word == "bad":
            raise ValueError("no such word")
        if word == "exit":
            sys.exit("so long")
        if word in _ENDS:
            raise _ENDS[word]
        accumulator[:] = [max([*accumulator, word], key=lambda each: (len(each), each))]

    def merge(self, accumulator: list[str], others: Iterable[list[str]]) -> None:
        for other in others:
            for word in other:
                self.accumulate(accumulator, word)

    def get_value(self, accumulator: list[str]) -> str | None:
        return accumulator[0] if accumulator else None


class Fragile:
    """Its accumulators cannot be merged, or have no value, after certain rows."""

    def create_accumulator(self) -> list[str]:
        return []

    def accumulate(self, accumulator: list[str], word: str) -> None:
        accumulator.append("\ud800" if word == "half a word" else word)

    def merge(self, accumulator: list[str], others: Iterable[list[str]]) -> None:
        for other in others:
            if "merge" in other:
                raise ValueError("these do not merge")
            accumulator += other

    def get_value(self, accumulator: list[str]) -> str:
        if "value" in accumulator:
            raise ValueError("there is no value")
        if "half" in accumulator:
            return "\ud800"
        return ",".join(sorted(accumulator))


class Mean:
    """The methods of Beam's CombineFn."""

    def create_accumulator(self) -> tuple[float, float]:
        return 0.0, 0.0

    def add_input(self, accumulator: tuple[float, float], value: float, weight: float = 1.0) -> tuple[float, float]:
        return accumulator[0] + value * weight, accumulator[1] + weight

    def merge_accumulators(self, accumulators: Iterable[tuple[float, float]]) -> tuple[float, float]:
        totals, weights = zip(*accumulators, strict=True)
        return sum(totals), sum(weights)

    def extract_output(self, accumulator: tuple[float, float]) -> float | None:
        return accumulator[0] / accumulator[1] if accumulator[1] else None


class Seen(NamedTuple):
    numbers: set[int]
    nulls: int


class Numbers:
    """A new accumulator is returned, of a type of its own; NULL counts."""

    def create_accumulator(self) -> Seen:
        return Seen(set(), 0)

    def accumulate(self, accumulator: Seen, value: int | None) -> Seen:
        if value is None:
            return accumulator._replace(nulls=accumulator.nulls + 1)
        return accumulator._replace(numbers=accumulator.numbers | {value})

    def merge(self, accumulator: Seen, others: Iterable[Seen]) -> Seen:
        for other in others:
            accumulator = Seen(accumulator.numbers | other.numbers, accumulator.nulls + other.nulls)
        return accumulator

    def get_value(self, accumulator: Seen) -> list[int]:
        return [accumulator.nulls, *sorted(accumulator.numbers)]


@udaf(result_type="BIGINT", input_types=[], accumulator=int)
class Rows:
    def create_accumulator(self):  # type: ignore[no-untyped-def]
        return 0

    def accumulate(self, accumulator):  # type: ignore[no-untyped-def]
        return accumulator + 1

    def merge(self, accumulator, others):  # type: ignore[no-untyped-def]
        return accumulator + sum(others)

    def get_value(self, accumulator):  # type: ignore[no-untyped-def]
        return accumulator


# ---- what SQL does not take -----------------------------------------------------------------------------------------


def without_hints(value):  # type: ignore[no-untyped-def]
    return value


def without_result(value: int):  # type: ignore[no-untyped-def]
    return value


def of_object(value: object) -> int:
    return 1


def of_list(value: list) -> int:  # type: ignore[type-arg]
    return 1


def of_union(value: int | str) -> int:
    return 1


def of_unknown(value: Nowhere) -> int:  # type: ignore[name-defined]  # noqa: F821
    return 1


def with_keyword(*, value: int) -> int:
    return value


def without_value(value: int) -> None:
    return None


def rows_of_what(value: int) -> Iterator:  # type: ignore[type-arg]
    yield value


async def later(value: int) -> int:
    return value


@udf(result_type="DECIMALL(3)")
def of_no_type(value: int) -> Decimal:
    return Decimal(value)


@udf(input_types=["INT"], result_type="INT")
def of_two(one: int, two: int) -> int:
    return one + two


class Unmerged:
    def create_accumulator(self) -> int:
        return 0

    def accumulate(self, accumulator: int, value: int) -> int:
        return accumulator + value

    def get_value(self, accumulator: int) -> int:
        return accumulator


class Untyped(Unmerged):
    def create_accumulator(self):  # type: ignore[no-untyped-def]
        return 0

    def merge(self, accumulator: int, others: Iterable[int]) -> int:
        return accumulator + sum(others)


class Unsent(Unmerged):
    def create_accumulator(self) -> object:  # type: ignore[override]
        return object()

    merge = Untyped.merge


class Doomed(Untyped):
    def create_accumulator(self) -> int:
        raise Panic("not today")


class Plain:
    limit = 7

    @staticmethod
    def doubled(value: int) -> int:
        return value * 2


number = 5
