"""The shard of a row is the same in each process, whatever the seed of its hashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rmqio.connect.files.write import shard_of

_PROGRAM = """
import dataclasses, datetime as dt, decimal, uuid
from rmqio.connect.files.write import shard_of

@dataclasses.dataclass
class Part:
    tags: frozenset

class Other:
    pass

words = ["alpha", "beta", "gamma", "delta", "epsilon"]
rows = [{"id": n, "tags": set(words[n % 4:]), "part": Part(frozenset(words)), "keys": {(1, w): {w} for w in set(words)},
         "other": Other(), "at": dt.datetime(2024, 1, 2), "d": decimal.Decimal("1.5"), "u": uuid.UUID(int=n), "b": b"x",
         "l": [{"s": set(words)}, (1, None)]} for n in range(20)]
print([shard_of(row, 7) for row in rows])
"""


def test_shards_do_not_depend_on_the_process() -> None:
    found = set()
    for seed in "012":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found.add(subprocess.check_output([sys.executable, "-c", _PROGRAM], env=environment, text=True))
    assert len(found) == 1
    assert len(set(next(iter(found)))) > 5, "rows are spread"


def test_the_order_of_fields_does_not_count() -> None:
    assert shard_of({"a": 1, "b": {"c": 2, "d": 3}}, 97) == shard_of({"b": {"d": 3, "c": 2}, "a": 1}, 97)
    assert {shard_of({"n": number}, 4) for number in range(50)} == {0, 1, 2, 3}
    assert shard_of({"n": 1}, 1) == 0


def test_rows_of_any_kind_have_a_shard() -> None:
    row: dict[object, object] = {"a": "\ud800", 1: float("nan"), None: b"x"}
    assert 0 <= shard_of(row, 5) < 5
    row["itself"] = row
    assert 0 <= shard_of(row, 5) < 5


def test_a_value_of_numpy_has_a_shard() -> None:
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    assert shard_of({"a": numpy.int64(7)}, 97) == shard_of({"a": 7}, 97)
