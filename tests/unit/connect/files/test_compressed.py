"""Compressed files: all their rows come, or an error that names the file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from rmqio.connect import ReadFromFiles
from rmqio.connect.files.read import decompressed
from rmqio.errors import SerdeError

zstandard = pytest.importorskip("zstandard", reason="files that end in .zst need zstandard")
LINES = b"id,name\r\n" + b"".join(b"%d,%d\r\n" % (number, number**7 % 1009) for number in range(5_000))
Compress = Callable[[bytes], bytes]
KINDS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".xz": lzma.compress,
    ".deflate": zlib.compress,
}


@pytest.fixture(params=list(KINDS))
def suffix(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def read(content: bytes, suffix: str) -> bytes:
    return decompressed(io.BytesIO(content), f"x.csv{suffix}").read()


def test_all_bytes_come_also_of_files_that_are_put_together(suffix: str) -> None:
    compress = KINDS[suffix]
    assert read(compress(LINES), suffix) == LINES
    assert read(compress(LINES[:999]) + compress(b"") + compress(LINES[999:]), suffix) == LINES
    assert read(LINES, "") == LINES
    large = bytes(30 << 20)  # 1,000 times as large as the file
    assert read(compress(large), suffix) == large


def test_zeros_behind_gzip_are_padding() -> None:
    assert read(gzip.compress(LINES) + bytes(100_000), ".gz") == LINES


@pytest.mark.parametrize("left", [0.0, 0.01, 0.5, -9, -1])
def test_a_truncated_file_is_an_error(suffix: str, left: float) -> None:
    whole = KINDS[suffix](LINES)
    cut = whole[: int(left)] if left < 0 else whole[: int(left * len(whole))]
    with pytest.raises(SerdeError, match="its compressed data ends too early: the file is truncated, or still being"):
        read(cut, suffix)
    if suffix != ".deflate":  # which has no frame around it: what comes first can only be seen as broken
        with pytest.raises(SerdeError, match="its compressed data"):
            read(whole + cut, suffix) if cut else read(cut, suffix)


@pytest.mark.parametrize("garbage", [b"garbage", b"\x00\x01" * 50])
def test_broken_data_is_an_error(suffix: str, garbage: bytes) -> None:
    whole = KINDS[suffix](LINES)
    with pytest.raises(SerdeError, match=r"its compressed data (is broken: |ends too early)"):
        read(whole + garbage, suffix)
    with pytest.raises(SerdeError, match="its compressed data is broken: "):
        read(garbage + whole, suffix)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_a_pipeline_reads_whole_files_and_fails_on_a_truncated_one(suffix: str, tmp_path: Path) -> None:
    whole = KINDS[suffix](LINES)
    path = tmp_path / f"x.csv{suffix}"
    path.write_bytes(whole)
    with beam.Pipeline() as pipeline:
        rows = pipeline | ReadFromFiles(str(path))
        assert_that(rows | beam.combiners.Count.Globally(), equal_to([5_000]))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Exception, match=rf"x\.csv{suffix}: its compressed data ends too early"):
        with beam.Pipeline() as pipeline:
            _ = pipeline | ReadFromFiles(str(path))
