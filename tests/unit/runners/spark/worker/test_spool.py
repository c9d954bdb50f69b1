"""Lists of bytes in a file beside memory."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.runners.spark.worker.state import Spool


def test_a_spool_gives_its_lists_back_while_others_are_written() -> None:
    spool = Spool()
    one = spool.store(iter([b"a", b"", b"ccc"]))
    reading = spool.runs(one)
    assert next(reading) == b"a"
    two = spool.store(spool.runs(one))
    assert list(reading) == [b"", b"ccc"]
    assert list(spool.runs(two)) == [b"a", b"", b"ccc"]
    used = [spool.used]
    spool.clear()
    assert [*used, spool.used] == [True, False]
    assert list(spool.runs(spool.store(iter([b"again"])))) == [b"again"]
    spool.close()
