"""A stream whose windows, state and timers are pending when it stops; and the same stream when it goes on.

Its broker is a new one each time, in this process. When the stream goes on, other messages stand at the offsets that it
has read: what it writes then shows whether it has its state, and does not read anew.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, CombiningValueStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, GlobalWindows

from rmqio import Message, ReadFromRocketMQ, ReadOptions, Record, StartFrom, WriteToRocketMQ
from rmqio.runners import options
from rmqio.sql import SqlTransform, row_time
from rmqio.testing import InMemoryCluster
from tests.helpers.fakes.broker import FakeBroker
from tests.helpers.pipelines.unended import goes_on as alive
from tests.helpers.waiting import until_found

TOPIC, SINK, QUEUES, SIZE_S = "at-rest", "at-rest-windows", 2, 60
KEPT, LATER = range(100), range(100, 200)
"""Numbers, which are seconds of event time: what is read before the stream stops, and what comes after that."""
_DDL: Final = "(k STRING, n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"
_SQL: Final = """
SELECT window_start AS s, k, COUNT(*) AS c, SUM(n) AS total
FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end
"""


class Totals(beam.DoFn):
    """Keeps the numbers of a key in state until the end of their window."""

    NUMBERS = BagStateSpec("numbers", VarIntCoder())
    COUNT = CombiningValueStateSpec("count", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[str, int],
        bounds: Any = beam.DoFn.WindowParam,
        numbers: Any = beam.DoFn.StateParam(NUMBERS),
        count: Any = beam.DoFn.StateParam(COUNT),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        numbers.add(element[1])
        count.add(1)
        end.set(bounds.end)

    @on_timer(END)
    def tell(
        self,
        key: Any = beam.DoFn.KeyParam,
        bounds: Any = beam.DoFn.WindowParam,
        numbers: Any = beam.DoFn.StateParam(NUMBERS),
        count: Any = beam.DoFn.StateParam(COUNT),
    ) -> Iterator[Message]:
        yield _message("state", bounds.start, key, count.read(), sum(numbers.read()))


def _message(way: str, start: Any, key: str, count: int, total: int) -> Message:
    return Message(f"{way} {float(start):.0f} {key} {count} {total}".encode())


def _grouped(element: tuple[str, Iterable[int]], bounds: Any = beam.DoFn.WindowParam) -> Message:
    numbers = list(element[1])
    return _message("group", bounds.start, element[0], len(numbers), sum(numbers))


def _keyed(record: Record) -> tuple[str, int]:
    found = json.loads(record.body)
    return found["k"], found["n"]


def _of_sql(row: Any) -> Message:
    return _message("sql", row.s, row.k, row.c, row.total)


def build(pipeline: beam.Pipeline, name_server: str) -> None:
    """Adds the stream to a pipeline."""
    records = pipeline | "Read" >> ReadFromRocketMQ(
        TOPIC, name_server=name_server, start=StartFrom.earliest(), timestamp=row_time(_DDL),
        options=ReadOptions(idle_timeout_ms=600_000),
    )  # fmt: skip
    keyed = records | "Key" >> beam.Map(_keyed).with_output_types(tuple[str, int])
    # Two, since Beam's translation for Flink loses one that a GroupByKey and a stateful DoFn share
    windows, others = (keyed | f"Windows {name}" >> beam.WindowInto(FixedWindows(SIZE_S)) for name in ("1", "2"))
    groups = windows | beam.GroupByKey() | "Group" >> beam.Map(_grouped).with_output_types(Message)
    totals = others | "State" >> beam.ParDo(Totals()).with_output_types(Message)
    query = {"m": records} | "Query" >> SqlTransform(_SQL, {"m": _DDL})
    rows = query | "Sql" >> beam.Map(_of_sql).with_output_types(Message)
    sink = WriteToRocketMQ(SINK, name_server=name_server, with_sent=False)
    # Rows of SQL are in the global window
    told = [each | f"Told {at}" >> beam.WindowInto(GlobalWindows()) for at, each in enumerate((groups, totals, rows))]
    _ = told | beam.Flatten() | "Write" >> sink


def started(runner: str, folder: Path, name_server: str) -> Any:
    """Starts the stream, which goes on from what is in the folder. Returns its result. `runner`: spark or flink."""
    flags = {
        "spark": ["--runner=SparkRunner", "--streaming", "--available_now", f"--checkpoint_dir={folder}"],
        "flink": ["--runner=FlinkRunner", "--streaming", "--checkpointing_interval=300", "--job_name=at-rest"],
    }[runner]
    flags += [f"--savepoint_path={path.as_uri()}" for path in folder.glob("savepoint-*")]
    pipeline = beam.Pipeline(options=options(flags))
    build(pipeline, name_server)
    return pipeline.run()


def end(runner: str, result: Any, cluster: InMemoryCluster, wanted: Sequence[str]) -> None:
    """Waits until the stream has read its topic and has written this. Then, that on Spark has ended."""
    if runner == "spark":
        result.wait_until_finish()
    else:
        until_found(lambda: written(cluster), wanted, alive=[alive(result)])


def write(runner: str, file: Path) -> None:
    """Writes what is at rest when the stream stops: a checkpoint of Spark, or a savepoint of Flink."""
    with TemporaryDirectory() as text, broker(goes_on=False) as (server, cluster):
        folder = Path(text)
        result = started(runner, folder, server.name_server)
        end(runner, result, cluster, wanted(0))
        if runner == "flink":
            result.stop_with_savepoint(folder.as_uri())
        if written(cluster) != wanted(0):
            raise SystemExit(f"{runner}: the stream has written {written(cluster)}")
        pack(folder, file)


_FOLDER: Final = b"@FOLDER@"
"""Stands for the folder: Spark keeps the whole paths of the schemas of its state."""


def pack(folder: Path, file: Path) -> None:
    """Packs what is at rest in a folder. Checksums and locks are left out."""
    with tarfile.open(file, "w:xz") as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            if path.suffix not in (".lock", ".crc"):
                content = path.read_bytes()
                if path.is_relative_to(folder / "state"):
                    content = content.replace(str(folder).encode(), _FOLDER)
                entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


def unpack(file: Path, folder: Path) -> None:
    """Unpacks it into another folder."""
    with tarfile.open(file) as tar:
        tar.extractall(folder, filter="data")
    for path in folder.glob("state/*/_metadata/*/*"):
        path.write_bytes(path.read_bytes().replace(_FOLDER, str(folder).encode()))


@contextmanager
def broker(*, goes_on: bool) -> Iterator[tuple[FakeBroker, InMemoryCluster]]:
    """Yields a broker with what is read first, or with other messages at these offsets, and what comes after them."""
    with InMemoryCluster() as cluster:
        cluster.create_topic(TOPIC, QUEUES)
        cluster.create_topic(SINK, 1)
        send(cluster, KEPT, is_lost=goes_on)
        if goes_on:
            send(cluster, LATER)
        with FakeBroker(cluster) as server:
            yield server, cluster


def send(cluster: InMemoryCluster, numbers: range, *, is_lost: bool = False) -> None:
    """Fills the topic. What is lost would be seen in all sums."""
    for number in numbers:
        ts = f"1970-01-01 00:{number // 60:02}:{number % 60:02}"
        body = {"k": f"k{number % 3}", "n": 1_000_000 if is_lost else number, "ts": ts}
        cluster.append(TOPIC, json.dumps(body).encode(), queue_id=number % QUEUES)


def written(cluster: InMemoryCluster) -> list[str]:
    """Returns what the stream has written, sorted."""
    (queue,) = cluster.stored_topic(SINK).queues
    return sorted(record.body.decode() for record in cluster.stored_queue(queue).records)


def wanted(*starts: int) -> list[str]:
    """Returns what the stream writes for these windows, sorted."""
    found = []
    for way in ("group", "sql", "state"):
        for start in starts:
            of_keys: dict[str, list[int]] = {}
            for number in range(start, min(start + SIZE_S, LATER.stop)):
                of_keys.setdefault(f"k{number % 3}", []).append(number)
            found += [f"{way} {start} {key} {len(some)} {sum(some)}" for key, some in of_keys.items()]
    return sorted(found)
