"""Streams go on from a checkpoint of Spark and from a savepoint of Flink that the code before has written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.runners.capabilities import Mode
from rmqio.runners.flink.jobserver import SERVERS
from tests.helpers.at_rest import streams
from tests.helpers.at_rest.__main__ import DATA

pytestmark = [
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


@pytest.mark.parametrize(
    "runner",
    [
        pytest.param("spark", marks=pytest.mark.shows(Mode.SPARK_STREAMING)),
        pytest.param("flink", marks=pytest.mark.shows(Mode.FLINK_STREAMING)),
    ],
)
def test_a_stream_goes_on_from_what_was_kept(runner: str, tmp_path: Path) -> None:
    """Its pending windows have what was read before, and nothing of what stands at these offsets now."""
    streams.unpack(DATA / f"{runner}.tar.xz", tmp_path)
    wanted = streams.wanted(60, 120)
    with streams.broker(goes_on=True) as (server, cluster):
        result = streams.started(runner, tmp_path, server.name_server)
        streams.end(runner, result, cluster, wanted)
        assert streams.written(cluster) == wanted
        if runner == "flink":
            result.cancel()
