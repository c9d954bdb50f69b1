"""Types of rows. Annotations are not text here: Beam looks at them."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, Optional

import numpy as np
from apache_beam.utils.timestamp import Timestamp


class Place(NamedTuple):
    city: str
    zip: Optional[int]  # noqa: UP045 - Beam looks for it


class Everything(NamedTuple):
    flag: bool
    tiny: np.int8
    small: np.int16
    number: np.int32
    large: int
    real: np.float32
    double: float
    text: str
    data: bytes
    amount: Decimal
    instant: Timestamp
    day: dt.date
    items: Sequence[Optional[int]]  # noqa: UP045
    names: Mapping[str, str]
    place: Place
    nothing: Optional[str]  # noqa: UP045


class Order(NamedTuple):
    id: int
    customer: Optional[str]  # noqa: UP045
    amount: Decimal


@dataclass
class Customer:
    name: str
    city: Optional[str]  # noqa: UP045


class Loose(NamedTuple):
    n: int
    text: Optional[str]  # noqa: UP045


class Seen(NamedTuple):
    at: Timestamp
    n: int


class Local(NamedTuple):
    at: Optional[dt.datetime]  # noqa: UP045


class Left(NamedTuple):
    k: Optional[str]  # noqa: UP045
    n: Optional[int]  # noqa: UP045
    x: float


class Right(NamedTuple):
    k: Optional[str]  # noqa: UP045
    t: Optional[int]  # noqa: UP045


def doubled(number: int) -> int:
    return 10 // number * 2


class Pair(NamedTuple):
    n: Optional[int]  # noqa: UP045
    w: Optional[str]  # noqa: UP045


class Event(NamedTuple):
    id: int
    k: Optional[str]  # noqa: UP045
    v: Optional[int]  # noqa: UP045
    m: Optional[Decimal]  # noqa: UP045
    f: Optional[float]  # noqa: UP045
    b: Optional[bool]  # noqa: UP045
    d: Optional[dt.date]  # noqa: UP045
    x: Optional[bytes]  # noqa: UP045
    a: Optional[Sequence[Optional[str]]]  # noqa: UP045
    g: Optional[Mapping[str, Optional[int]]]  # noqa: UP045
    r: Optional[Pair]  # noqa: UP045
    ts: dt.datetime


class Untimed(NamedTuple):
    id: int
    k: Optional[str]  # noqa: UP045
    v: Optional[int]  # noqa: UP045
    m: Optional[Decimal]  # noqa: UP045
    f: Optional[float]  # noqa: UP045
    b: Optional[bool]  # noqa: UP045
    d: Optional[dt.date]  # noqa: UP045
    x: Optional[bytes]  # noqa: UP045
    a: Optional[Sequence[Optional[str]]]  # noqa: UP045
    g: Optional[Mapping[str, Optional[int]]]  # noqa: UP045
    r: Optional[Pair]  # noqa: UP045
