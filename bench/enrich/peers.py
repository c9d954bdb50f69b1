"""Peers: a dict, LMDB, RocksDB. The values of the last two are MessagePack, decoded in C to a tuple."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.common.rss import rss_mb
from bench.enrich.rows import PART, Row, key_of, row_of

Get = Callable[[list[str]], list[Any]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, int, str]).decode


class Peer(NamedTuple):
    """A table of another make. `get` is usable until the next peer is asked for."""

    name: str
    rows: int
    row_bytes: float
    get: Get


def peers(folder: Path, *, dict_rows: int, disk_rows: int) -> Iterator[Peer]:
    """Yields one after another. What is not installed is said, and left out."""
    yield from _dict(dict_rows)
    for name, make in (("lmdb", _lmdb), ("rocksdict", _rocksdb)):
        try:
            module = __import__(name)
        except ImportError:
            print(f"{name} is not installed")
        else:
            yield from make(module, folder / name, disk_rows)


def _dict(rows: int) -> Iterator[Peer]:
    before = rss_mb()
    table = {key_of(n): row_of(n) for n in range(rows)}
    size = (rss_mb() - before) * 1e6 / rows
    yield Peer("dict, in each process", rows, size, lambda keys: [table.get(key) for key in keys])


def _lmdb(lmdb: Any, folder: Path, rows: int) -> Iterator[Peer]:
    environment = lmdb.open(str(folder), map_size=1 << 36, sync=False)
    ordered = sorted((key_of(n).encode(), n) for n in range(rows))
    with environment.begin(write=True) as transaction:
        pairs = ((key, _encode(row_of(n))) for key, n in ordered)
        transaction.cursor().putmulti(pairs, append=True)
    del ordered
    try:
        with environment.begin(buffers=True) as transaction:
            get = transaction.get
            yield Peer("LMDB", rows, _disk(folder) / rows, lambda keys: [_row(get(key.encode())) for key in keys])
    finally:
        environment.close()


def _rocksdb(rocksdict: Any, folder: Path, rows: int) -> Iterator[Peer]:
    store = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    for start in range(0, rows, PART):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for n in range(start, min(start + PART, rows)):
            batch.put(key_of(n).encode(), _encode(row_of(n)))
        store.write(batch)
    store.flush()
    store.compact_range(None, None)
    try:
        yield Peer("RocksDB", rows, _disk(folder) / rows,
                   lambda keys: [_row(each) for each in store.get([key.encode() for key in keys])])  # fmt: skip
    finally:
        store.close()


def _row(data: Any) -> Row | None:
    return None if data is None else _decode(data)


def _disk(folder: Path) -> float:
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())
