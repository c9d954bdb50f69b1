"""`WriteToSink` in a pipeline, and its writer with its thread."""

from __future__ import annotations

import dataclasses
import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from rmqio import telemetry
from rmqio.batches import Batch
from rmqio.connect import Batching, BatchSink, Retry, RowRefused, WriteToSink, Written
from rmqio.connect.delivery import Item, Writer
from rmqio.connect.rows import to_json, to_row
from rmqio.connect.transform import Refusals
from rmqio.errors import LocalError, SerdeError
from rmqio.model import Message, MessageQueue
from rmqio.serde.strict_json import JsonNumber
from rmqio.telemetry import Metric
from rmqio.transforms import ReadFailure
from tests.helpers.own_process import in_own_process
from tests.helpers.waiting import until


class Folder(BatchSink):
    """A file for each batch, below a folder for each destination."""

    name = "folder"

    def __init__(self, root: Path) -> None:
        self.root = root

    def destination(self, row: Any) -> str:
        return str(row["to"])

    def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
        folder = self.root / destination
        folder.mkdir(exist_ok=True)
        (folder / uuid.uuid4().hex).write_text("\n".join(map(to_json, rows)))
        return None

    def batches(self, destination: str) -> list[list[Any]]:
        return [[*map(json.loads, each.read_text().splitlines())] for each in (self.root / destination).iterdir()]


class Picky(Folder):
    def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
        bad = {place: RowRefused("n is 13") for place, row in enumerate(rows) if row["n"] == 13}
        super().write([row for place, row in enumerate(rows) if place not in bad], destination)
        return Written(bad) if bad else None


def rows(count: int) -> list[dict[str, Any]]:
    return [{"n": number, "to": "ab"[number % 2]} for number in range(count)]


def test_rows_arrive_in_batches_of_their_destination(tmp_path: Path) -> None:
    sink = Folder(tmp_path)
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create(rows(20)) | WriteToSink(sink, batching=Batching(max_rows=4))
    for destination in "ab":
        found = sink.batches(destination)
        assert max(map(len, found)) <= 4
        assert sorted(row["n"] for batch in found for row in batch) == [*range("ab".index(destination), 20, 2)]


def test_a_refused_row_goes_out_alone_with_its_window(tmp_path: Path) -> None:
    windows: list[Any] = []

    def check(failures: list[Any]) -> None:
        windows.extend(failures)
        ((failure, window),) = failures
        assert (failure.error, failure.reason) == ("RowRefused", "n is 13")
        assert json.loads(failure.body) == {"n": 13, "to": "b"}
        assert (float(window.start), float(window.end)) == (10.0, 15.0)

    with beam.Pipeline() as pipeline:
        result = (
            pipeline
            | beam.Create(rows(20))
            | beam.Map(lambda row: TimestampedValue(row, row["n"]))
            | beam.WindowInto(FixedWindows(5))
            | WriteToSink(Picky(tmp_path), on_failure="output")
        )
        seen = result.failed | beam.Map(lambda each, window=beam.DoFn.WindowParam: (each, window))
        _ = seen | "All" >> beam.WindowInto(beam.window.GlobalWindows()) | beam.combiners.ToList() | beam.Map(check)
    found = [row["n"] for name in "ab" for batch in Picky(tmp_path).batches(name) for row in batch]
    assert sorted(found) == [number for number in range(20) if number != 13]


def test_without_an_output_a_refused_row_fails_the_pipeline_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="folder refuses 1 row; the first: n is 13; to continue without"):
        with beam.Pipeline() as pipeline:
            _ = pipeline | beam.Create(rows(20)) | WriteToSink(Picky(tmp_path))


def test_a_batch_of_a_topic_gives_failures_with_places(tmp_path: Path) -> None:
    values = [b'{"n": 1, "to": "a"}', b"no JSON", b'{"n": 13, "to": "a"}', Message(b"[1]", keys=("k",))]
    batch = Batch(values, MessageQueue("orders", "broker-a", 2), range(40, 44))

    def check(failures: list[ReadFailure]) -> None:
        found = {each.queue_offset: (each.body, each.topic, each.broker, each.queue_id, each.keys) for each in failures}
        place = ("orders", "broker-a", 2)
        assert found == {
            41: (b"no JSON", *place, ""),
            42: (b'{"n": 13, "to": "a"}', *place, ""),
            43: (b"[1]", *place, "k"),
        }

    with beam.Pipeline() as pipeline:
        result = pipeline | beam.Create([batch]) | WriteToSink(Picky(tmp_path), batches=True, on_failure="output")
        _ = result.failed | beam.combiners.ToList() | beam.Map(check)
    assert Picky(tmp_path).batches("a") == [[{"n": 1, "to": "a"}]]


def test_a_writer_logs_refused_rows_at_once_and_then_each_30_s(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((100.0, 101.0, 129.9, 130.0, 131.0, 160.0, 160.0))
    refusals = Refusals("folder", clock=lambda: next(times))
    for _ in range(6):
        refusals.warn("a", 2, RowRefused("n is 13"))
    refusals.warn("b", 1, RowRefused("n is 14"))
    assert [each.getMessage() for each in caplog.records] == [
        "folder refuses 2 rows for a; the first: RowRefused: n is 13",
        "folder refuses 6 rows for a; the first: RowRefused: n is 13",
        "folder refuses 4 rows for a; the first: RowRefused: n is 13",
        "folder refuses 1 row for b; the first: RowRefused: n is 14",
    ]


def test_a_bundle_logs_once_how_many_rows_of_a_destination_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each row is written and refused before the next one comes."""
    given = [{"n": 13, "to": "ab"[number % 2]} for number in range(5)]
    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create([*given, b"no JSON"], reshuffle=False)
        _ = rows | WriteToSink(Picky(tmp_path), batching=Batching(max_rows=1), on_failure="output")
    found = sorted(each.getMessage() for each in caplog.records if "refuses" in each.getMessage())
    assert found[1:] == [
        "folder refuses 2 rows for b; the first: RowRefused: n is 13",
        "folder refuses 3 rows for a; the first: RowRefused: n is 13",
    ]
    assert found[0].startswith("folder refuses 1 row; the first: SerdeError: the body is not JSON")


class Heard(list[tuple[str, tuple[str, ...], float]]):
    """A recorder that keeps what it hears."""

    def record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        self.append((metric.name, labels, value))


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard()
    telemetry.install(made)
    yield made
    telemetry.install(None)


def test_metrics_count_rows_batches_and_failures(tmp_path: Path, heard: Heard) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | beam.Create(rows(20)) | WriteToSink(Picky(tmp_path), on_failure="output")
    result = pipeline.run()
    result.wait_until_finish()
    assert heard[:1] == [("rows_written", ("folder",), 0.0)], "an exporter shows failures as zero before the first row"
    assert sum(value for name, _, value in heard if name == "rows_written") == 19
    counters = {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}
    assert counters["rows_written"] == 19
    assert counters["row_failures"] == 1
    assert counters["row_batches_written"] >= 2


class Recording(BatchSink):
    name = "recording"

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.arrived = threading.Event()
        self.error: Exception | None = None

    def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
        self.arrived.set()
        if self.error is not None:
            raise self.error
        self.rows += rows
        return None


def item(row: Any) -> Item:
    return Item(row, row, None, None)


def test_a_row_does_not_wait_for_the_end_of_a_long_bundle() -> None:
    sink = Recording()
    writer = Writer(sink, Batching(max_wait_s=0.05), Retry())
    writer.begin()
    for number in range(3):  # the thread waits for each first row again
        sink.arrived.clear()
        writer.add(item(number), None, 1)
        until(sink.arrived.is_set, "the thread to write the row")
    writer.finish()
    assert sink.rows == [0, 1, 2]
    assert writer.take()[:2] == (3, 3)
    writer.close()


def test_rows_refused_between_two_elements_are_in_the_log_before_the_next_one_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the thread of the bundle can raise them or put them out, and it waits for an element."""
    monkeypatch.setattr("rmqio.connect.delivery._UNSEEN_S", 0.05)
    writer = Writer(Recording(), Batching(max_wait_s=0.01), Retry())
    monkeypatch.setattr(Recording, "write", lambda *_: Written({0: RowRefused("n is 13")}))
    writer.begin()
    writer.add(item(13), None, 1)
    until(lambda: bool(caplog.messages), "a line in the log")
    assert caplog.messages == [
        "recording refuses 1 row; the first: RowRefused: n is 13; the next element, or the end of the bundle, takes "
        "them further"
    ]
    (refused,) = writer.take().refused
    assert refused[0].row == 13
    writer.close()


def test_what_fails_in_the_thread_fails_the_bundle_and_the_next_one_begins_anew() -> None:
    sink = Recording()
    writer = Writer(sink, Batching(max_wait_s=0.01), Retry(give_up_after_s=0))
    writer.begin()
    sink.error = LocalError("there is no such table")
    writer.add(item(1), None, 1)
    until(sink.arrived.is_set, "the thread to write the row")
    with pytest.raises(LocalError, match="no such table"):
        writer.finish()
    sink.error = None
    writer.begin()
    writer.add(item(2), None, 1)
    writer.finish()
    assert sink.rows == [2]
    writer.close()


def test_no_row_of_a_failed_bundle_is_written_by_the_next_one() -> None:
    sink = Recording()
    writer = Writer(sink, Batching(max_wait_s=None), Retry())
    writer.begin()
    writer.add(item("of the failed one"), None, 1)
    writer.begin()
    writer.add(item("of the next one"), None, 1)
    writer.finish()
    writer.close()
    assert sink.rows == ["of the next one"]


@in_own_process
def test_without_a_limit_of_time_no_thread_runs() -> None:
    writer = Writer(Recording(), Batching(max_wait_s=None), Retry())
    writer.begin()
    writer.add(item(1), None, 1)
    assert threading.active_count() == 1
    writer.close()


@in_own_process
def test_close_ends_the_thread_though_it_waits_for_a_day() -> None:
    writer = Writer(Recording(), Batching(max_wait_s=86_400), Retry())
    writer.begin()
    writer.add(item(1), None, 1)
    assert threading.active_count() == 2
    writer.close()
    assert threading.active_count() == 1


class Pair(NamedTuple):
    a: int
    b: str


@dataclasses.dataclass
class Data:
    a: int
    b: str


@pytest.mark.parametrize(
    "element",
    [
        {"a": 1, "b": "x"}, b'{"a": 1, "b": "x"}', '{"a": 1, "b": "x"}', Message(b'{"a": 1, "b": "x"}'),
        beam.Row(a=1, b="x"), Pair(1, "x"), Data(1, "x"),
    ],
)  # fmt: skip
def test_what_can_be_a_row(element: Any) -> None:
    assert to_row(element) == {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    ("element", "message"),
    [(b"x", "not JSON"), (b"[1]", "not an object: list"), (7, "int is not a row"), (b"[" * 200_000, "not JSON")],
)
def test_what_cannot_be_a_row(element: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        to_row(element)


def test_a_failure_has_the_whole_row_also_one_without_json(tmp_path: Path) -> None:
    def check(failures: list[ReadFailure]) -> None:
        body = b'{"n":13,"to":"a","x":NaN,"d":0.12345678901234567890,"long":"' + b"y" * 5000 + b'"}'
        assert [each.body for each in failures] == [body]

    exact = JsonNumber("0.12345678901234567890")
    row = {"n": 13, "to": "a", "x": float("nan"), "d": exact, "long": "y" * 5000}
    with beam.Pipeline() as pipeline:
        result = pipeline | beam.Create([row]) | WriteToSink(Picky(tmp_path), on_failure="output")
        _ = result.failed | beam.combiners.ToList() | beam.Map(check)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink": "x"}, "sink is 'x'; it must be a rmqio.connect.BatchSink"),
        ({"on_failure": "drop"}, "on_failure is 'drop'"),
        ({"retry": 3}, "retry is 3; it must be a rmqio.connect.Retry"),
        ({"batching": {"max_rows": 3}}, "must be a rmqio.connect.Batching"),
    ],
)
def test_arguments_are_checked_when_it_is_built(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        WriteToSink(**{"sink": Recording(), **options})
