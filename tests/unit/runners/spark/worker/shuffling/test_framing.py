"""Lengths and window headers of shuffled values."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.worker.shuffling import split_window_header, varint, window_header


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 1 << 40, -1])
def test_varints_are_beams(number: int) -> None:
    from apache_beam.coders import VarIntCoder

    assert varint(number) == VarIntCoder().encode(number)


def test_window_headers() -> None:
    from apache_beam.utils.timestamp import Timestamp

    assert split_window_header(window_header(b"w" * 300, None) + b"run") == (b"w" * 300, None, b"run")
    assert split_window_header(window_header(b"", Timestamp(-1.5)) + b"") == (b"", Timestamp(-1.5), b"")
