"""Claim checks: big bodies go to files and come back, and what goes wrong with them is told."""

from __future__ import annotations

import datetime
import functools
import json
import pickle
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import GlobalWindow
from hypothesis import given
from hypothesis import strategies as st

from rmqio import Batch, ClaimCheck, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.claims import clean
from rmqio.claims.check import PROPERTY, ClaimStoreError, Reference, is_reference, reference_of, resolved
from rmqio.claims.store import ClaimStore
from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.testing import InMemoryClientFactory, InMemoryCluster
from rmqio.transforms.coders import BatchConstraint
from rmqio.transforms.failures import failure_of_record
from rmqio.transforms.reading.record_batches import RecordBatch, UnbatchFn
from rmqio.transforms.shared import close_shared_clients
from tests.helpers.transforms.write_bundles import Bundles

BIG, SMALL = b"big" * 1_000, b"small"
DAY_S = 86_400
PATH: Any = "x"
NOON_S = datetime.datetime(2026, 3, 5, 12, tzinfo=datetime.UTC).timestamp()


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster() as made:
        for topic in ("t", "copies", "dead"):
            made.create_topic(topic, 1)
        yield made
        close_shared_clients()


@pytest.fixture
def check(tmp_path: Path) -> ClaimCheck:
    return ClaimCheck(str(tmp_path / "claims"), above_bytes=1_000)


@pytest.fixture(params=[False, True], ids=["elements", "batches"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bundles, "in_batches", request.param)


def objects(check: ClaimCheck) -> list[Path]:
    return sorted(path for path in Path(check.path).rglob("*") if path.is_file())


def write(cluster: InMemoryCluster, messages: list[Any], check: ClaimCheck | None, **more: Any) -> Any:
    factory = InMemoryClientFactory(cluster.name)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        written = WriteToRocketMQ("t", claim_check=check, client_factory=factory, **more)
        _ = pipeline | beam.Create(messages, reshuffle=False) | written
    return pipeline.result


def reading(cluster: InMemoryCluster, check: ClaimCheck | None, **more: Any) -> ReadFromRocketMQ:
    factory = InMemoryClientFactory(cluster.name)
    position: Any = {"start": StartFrom.earliest(), "stop": StopAt.latest()}
    return ReadFromRocketMQ("t", claim_check=check, client_factory=factory, **position, **more)


def bodies(cluster: InMemoryCluster, check: ClaimCheck | None, expected: list[bytes], **more: Any) -> Any:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(pipeline | reading(cluster, check, **more) | beam.Map(lambda r: r.body), equal_to(expected))
    return pipeline.result


def counted(result: Any, name: str) -> int:
    found = result.metrics().query(beam.metrics.MetricsFilter().with_name(name))["counters"]
    return sum(each.committed for each in found)


# ---- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_batches", [False, True])
def test_big_bodies_travel_beside_their_messages(cluster: InMemoryCluster, check: ClaimCheck, in_batches: bool) -> None:
    messages = [Message(BIG, keys=("a",), properties={"p": "1"}), Message(SMALL), Message(BIG), Message(BIG + b"!")]
    result = write(cluster, [messages] if in_batches else messages, check, batches=in_batches)
    assert counted(result, "claims_written") == 3
    stored = cluster.records("t")
    assert [len(each.body) < 1_000 for each in stored] == [True] * 4
    assert sorted(path.read_bytes() for path in objects(check)) == [BIG, BIG + b"!"], "one object for equal bodies"
    told = json.loads(next(each.body for each in stored if each.keys))
    assert Path(told["claim_check"]).read_bytes() == BIG
    assert told["bytes"] == len(BIG)

    result = bodies(cluster, check, [BIG, BIG, BIG + b"!", SMALL])
    assert counted(result, "claims_read") == 3
    bodies(cluster, None, [each.body for each in stored])  # without it, a reference is a message like any other


def test_a_record_that_is_written_again_is_an_ordinary_message(cluster: InMemoryCluster, check: ClaimCheck) -> None:
    write(cluster, [Message(BIG, properties={"p": "1"})], check)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        copies = WriteToRocketMQ("copies", client_factory=InMemoryClientFactory(cluster.name))
        _ = pipeline | reading(cluster, check) | copies
    (copy,) = cluster.records("copies")
    assert (copy.body, copy.get_property("p"), copy.get_property(PROPERTY)) == (BIG, "1", None)


def test_a_copied_reference_goes_with_its_old_object_and_a_copied_body_stays(
    cluster: InMemoryCluster, check: ClaimCheck
) -> None:
    factory = InMemoryClientFactory(cluster.name)
    old = ClaimStore(check, clock=lambda: time.time() - 10 * DAY_S).put(Message(BIG))
    write(cluster, [old], None)
    for topic, copying in (("copies", None), ("dead", check)):
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            _ = (
                pipeline
                | reading(cluster, copying)
                | WriteToRocketMQ(topic, claim_check=copying, client_factory=factory)
            )
    clean(check.path, older_than_s=7 * DAY_S)
    store = ClaimStore(check)
    _, errors = store.resolve(cluster.records("copies"))
    assert "is missing" in str(errors[0])
    (copy,), errors = store.resolve(cluster.records("dead"))
    assert (copy.body, errors) == (BIG, {})


def test_a_batch_keeps_the_places_of_its_values(cluster: InMemoryCluster, check: ClaimCheck) -> None:
    write(cluster, [Message(BIG), Message(SMALL), Message(BIG + b"2")], check)
    objects(check)[0].unlink()
    lost = next(n for n, r in enumerate(cluster.records("t")) if is_reference(r) and not _is_there(check, r))

    def facts(batch: Batch[Record]) -> list[tuple[int, int]]:
        return [(offset, len(each.body)) for offset, each in zip(batch.offsets, batch, strict=True)]

    sizes = {0: len(BIG), 1: len(SMALL), 2: len(BIG) + 1}
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        batches = pipeline | reading(cluster, check, batches=True, dead_letter_topic="dead")
        assert_that(
            batches | beam.FlatMap(facts), equal_to([(n, size) for n, size in sizes.items() if n != lost]), "facts"
        )
        _ = batches.element_type == BatchConstraint(Record)
    (letter,) = cluster.records("dead")
    assert letter.get_property("RMQIO_QUEUE_OFFSET") == str(lost)


def _is_there(check: ClaimCheck, record: Record) -> bool:
    return Path(check.path, str(reference_of(record, 1 << 30))).exists()


@pytest.mark.parametrize("in_batches", [False, True])
def test_no_more_bodies_are_in_memory_than_fit(
    check: ClaimCheck, monkeypatch: pytest.MonkeyPatch, in_batches: bool
) -> None:
    monkeypatch.setattr("rmqio.transforms.reading.record_batches.HELD_BYTES", 7_000)
    store, offsets = ClaimStore(check), range(9)
    sent = [Message(SMALL) if n == 4 else store.put(Message(b"%d" % n * (8_000 if n == 7 else 3_000))) for n in offsets]
    raws = [f"{PROPERTY}\x01{each.properties.get(PROPERTY)}\x02".encode() for each in sent]
    raws[4], raws[5] = b"", f"{PROPERTY}\x01nonsense\x02".encode()
    records = [
        Record("t", "b", 0, n, each.body, 0, 0, raws[n], 0, 0, 0, n, n, b"", b"", 0, 0) for n, each in enumerate(sent)
    ]
    fn = UnbatchFn(None, batches=in_batches, errors_to_output=True, claim_check=check)
    earlier = failure_of_record(records[0], SerdeError("earlier"))
    made = fn.process(RecordBatch(records, [*offsets], [earlier]), window=GlobalWindow())
    values: list[Any] = []
    failures: list[str] = []
    calls: list[int] = []
    resolve = ClaimStore.resolve

    def counted(store: ClaimStore, some: Any) -> Any:
        calls.append(len(some))
        return resolve(store, some)

    monkeypatch.setattr(ClaimStore, "resolve", counted)
    for each in made:
        if isinstance(each, beam.pvalue.TaggedOutput):
            failures.append(each.value.value.reason)
        else:
            values += each.value if in_batches else [each.value]
    assert [each.body[:1] for each in values] == [b"0", b"1", b"2", b"3", b"s", b"6", b"7", b"8"]
    assert calls == [2, 4, 1, 1, 1]
    assert [each[:12] for each in failures] == ["earlier", "claim check:"]


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_missing_or_changed_object_is_a_dead_letter(cluster: InMemoryCluster, check: ClaimCheck) -> None:
    write(cluster, [Message(BIG), Message(SMALL), Message(BIG + b"2"), Message(BIG + b"3")], check)
    missing, changed, shorter = objects(check)
    missing.unlink()
    changed.write_bytes(changed.read_bytes()[::-1])
    shorter.write_bytes(b"short")
    bodies(cluster, check, [SMALL], dead_letter_topic="dead")
    reasons = [str(each.get_property("RMQIO_ERROR_REASON")) for each in cluster.records("dead")]
    assert sorted(re.sub(r"\S*/\S+", "...", reason)[:60] for reason in reasons) == [
        "claim check: the object ... has 5 bytes, and its message say",
        "claim check: the object ... is missing: it was removed, or t",
        "claim check: the object ... was changed: its SHA-256 is not ",
    ]
    with pytest.raises(Exception, match=r"broker-a.*claim check: the object .* is missing"):
        bodies(cluster, check, [])


@pytest.mark.parametrize("mount_point", [False, True])
def test_a_folder_that_is_away_fails_the_bundle_and_no_message(
    cluster: InMemoryCluster, check: ClaimCheck, tmp_path: Path, mount_point: bool
) -> None:
    write(cluster, [Message(BIG)], check)
    Path(check.path).rename(tmp_path / "away")
    if mount_point:
        Path(check.path).mkdir()
    with pytest.raises(Exception, match="claim check: cannot read"):
        bodies(cluster, check, [], dead_letter_topic="dead")
    assert not cluster.records("dead")


class NotFound(Exception):
    """Object stores' clients raise errors that are no OSError, e.g. `google.api_core.exceptions.NotFound`."""


def refuse(*_: Any, **__: Any) -> Any:
    raise NotFound("404")


def test_a_missing_object_is_a_dead_letter_whatever_the_file_system_raises(
    cluster: InMemoryCluster, check: ClaimCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cluster, [Message(BIG), Message(SMALL)], check)
    monkeypatch.setattr(FileSystems, "open", refuse)
    with pytest.raises(Exception, match=r"claim check: cannot read .*NotFound: 404"):
        bodies(cluster, check, [SMALL], dead_letter_topic="dead")
    assert not cluster.records("dead"), "the object is there"
    objects(check)[0].unlink()
    bodies(cluster, check, [SMALL], dead_letter_topic="dead")
    (letter,) = cluster.records("dead")
    assert "is missing" in str(letter.get_property("RMQIO_ERROR_REASON"))


@pytest.mark.parametrize(
    "value",
    ["1 ../../etc/passwd 3", "1 2026-01-01/../../x 3", "/etc/passwd", "", "2 x", "1 2026-01-01/" + "A" * 64 + " 3"],
)
def test_a_reference_cannot_leave_the_folder(value: str, cluster: InMemoryCluster, check: ClaimCheck) -> None:
    cluster.append("t", b"x", properties={PROPERTY: value or " "})
    bodies(cluster, check, [], dead_letter_topic="dead")
    (letter,) = cluster.records("dead")
    assert "which names no object of the folder" in str(letter.get_property("RMQIO_ERROR_REASON"))


@given(st.binary(max_size=200), st.dictionaries(st.text("abc", min_size=1), st.text("xyz", min_size=1), max_size=3))
def test_a_reference_survives_the_wire_and_leaves_no_trace(body: bytes, properties: dict[str, str]) -> None:
    reference = Reference.of(body, NOON_S)
    raw = b"".join(b"%b\x01%b\x02" % (k.encode(), v.encode()) for k, v in properties.items())
    marked = raw + f"{PROPERTY}\x01{reference.value}\x02".encode()
    record = Record("t", "b", 0, 0, b"-", 0, 0, marked, 0, 0, 0, 0, 0, b"", b"", 0, 0)
    assert reference_of(record, 1_000) == reference
    reference.check(body)
    back = resolved(record, body)
    assert (back.body, back.raw_properties, is_reference(back)) == (body, raw, False)
    with pytest.raises(SerdeError):
        reference.check(body + b"x")


def test_too_large_an_object_is_not_read(cluster: InMemoryCluster, check: ClaimCheck) -> None:
    write(cluster, [Message(BIG)], check)
    bodies(cluster, ClaimCheck(check.path, above_bytes=10, max_bytes=2_999), [], dead_letter_topic="dead")
    (letter,) = cluster.records("dead")
    assert "3000 bytes; ClaimCheck.max_bytes is 2999" in str(letter.get_property("RMQIO_ERROR_REASON"))


# ---- writing, bundle by bundle ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_the_object_is_there_before_the_message_and_if_it_cannot_be_nothing_is_sent(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    bundles = Bundles(claim_check=ClaimCheck(str(blocked / "claims"), above_bytes=10))
    bundles.fn.start_bundle()
    with pytest.raises(ClaimStoreError, match="claim check: cannot write"):
        bundles.process(Message(b"x" * 100))
    assert bundles.bodies() == []
    assert not bundles.failed, "it is not the message's fault"


@pytest.mark.usefixtures("both_ways")
def test_a_store_that_is_away_fails_no_message_whatever_it_raises(
    check: ClaimCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSystems, "create", refuse)
    bundles = Bundles(claim_check=check)
    bundles.fn.start_bundle()
    with pytest.raises(ClaimStoreError, match=r"claim check: cannot write .*NotFound: 404"):
        bundles.process(Message(BIG))
    assert not bundles.failed, "it is not the message's fault"


@pytest.mark.usefixtures("both_ways")
def test_a_file_system_that_is_not_installed_fails_no_message() -> None:
    bundles = Bundles(claim_check=ClaimCheck("unknown://bucket/claims", above_bytes=10))
    bundles.fn.start_bundle()
    with pytest.raises(ClaimStoreError, match=r"cannot write unknown://bucket/claims/.*Unable to get filesystem"):
        bundles.process(Message(b"x" * 100))
    assert not bundles.failed


@pytest.mark.usefixtures("both_ways")
def test_a_bundle_that_comes_again_makes_no_second_object(check: ClaimCheck) -> None:
    bundles = Bundles(claim_check=check)
    for _ in range(2):
        bundles.run(Message(BIG), Message(SMALL))
    assert len(objects(check)) == 1
    assert len(bundles.records()) == 4
    assert {each.get_property(PROPERTY) is None for each in bundles.records()} == {True, False}


@pytest.mark.usefixtures("both_ways")
def test_a_body_over_the_limit_fails_alone(check: ClaimCheck) -> None:
    bundles = Bundles(claim_check=ClaimCheck(check.path, above_bytes=10, max_bytes=100))
    bundles.run(Message(b"a" * 50), Message(b"b" * 101), Message(b"c"))
    assert [each.value.reason for each in bundles.failed] == ["claim check: the body has 101 bytes; max_bytes is 100"]
    assert len(bundles.records()) == 2


def test_another_writer_of_the_same_body_does_no_harm(check: ClaimCheck) -> None:
    stores = [ClaimStore(check, clock=lambda: NOON_S) for _ in range(2)]
    sent = [store.put(Message(BIG)) for store in stores]
    assert sent[0] == sent[1]
    assert [path.name[-5:] == ".part" for path in objects(check)] == [False]
    later = ClaimStore(check, clock=lambda: NOON_S + DAY_S).put(Message(BIG))
    assert later.properties != sent[0].properties
    assert len(objects(check)) == 2, "so that an object is not removed with the day on which it was first written"


# ---- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        *((functools.partial(ClaimCheck, url), "names no folder") for url in ("s3://", "gs:///", "hdfs:// ")),
        (lambda: ClaimCheck(" "), "ClaimCheck.path is ' '; it must be a folder"),
        (lambda: ClaimCheck("x", above_bytes=0), "ClaimCheck.above_bytes is 0; it must be a whole number"),
        (lambda: ClaimCheck("x", above_bytes=9, max_bytes=9), "ClaimCheck.max_bytes is 9; it must be more than"),
        (lambda: WriteToRocketMQ("t", name_server="a:1", claim_check=PATH), "claim_check is 'x'; it must be"),
        (lambda: ReadFromRocketMQ("t", name_server="a:1", claim_check=PATH), "claim_check is 'x'; it must be"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(make: Any, text: str) -> None:
    with pytest.raises(LocalError, match=re.escape(text)):
        make()


def test_it_travels_to_workers(check: ClaimCheck) -> None:
    assert pickle.loads(pickle.dumps(check)) == check


# ---- cleaning --------------------------------------------------------------------------------------------------------


def test_objects_go_by_age_and_other_files_stay(check: ClaimCheck) -> None:
    for days_ago in (0, 1, 7, 8, 9):
        ClaimStore(check, clock=lambda at=NOON_S - days_ago * DAY_S: at).put(Message(BIG))  # type: ignore[misc]
    other = Path(check.path, "2026-99-99")
    other.mkdir()
    (other / "x").write_text("not ours")
    table = Path(check.path, "2026-01-01")  # a folder that is partitioned by day, given by mistake
    table.mkdir()
    (table / "part-0000.parquet").write_text("not ours")
    week_s = 7 * DAY_S
    plan = clean(check.path, older_than_s=week_s, dry_run=True, now_s=NOON_S)
    assert plan == (2, 2 * len(BIG), ("2026-02-24", "2026-02-25"))
    assert len(objects(check)) == 7
    assert clean(check.path, older_than_s=week_s, now_s=NOON_S) == plan
    left = ["2026-01-01", "2026-02-26", "2026-03-04", "2026-03-05", "2026-99-99"]
    assert [path.parent.name for path in objects(check)] == left
    assert clean(check.path, older_than_s=week_s, now_s=NOON_S).objects == 0
    with pytest.raises(LocalError, match="there is no folder"):
        clean(check.path + "x", older_than_s=week_s)
    with pytest.raises(LocalError, match="older_than_s is 0"):
        clean(check.path, older_than_s=0)


def test_what_a_killed_writer_has_left_goes_with_its_day(check: ClaimCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSystems, "rename", refuse)
    with pytest.raises(ClaimStoreError):
        ClaimStore(check, clock=lambda: NOON_S).put(Message(BIG))
    assert [path.name[-5:] for path in objects(check)] == [".part"]
    assert clean(check.path, older_than_s=1, now_s=NOON_S + DAY_S).objects == 1
    assert not objects(check)


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClaimStoreError, match="cannot clean unknown://bucket: ValueError: Unable to get filesystem"):
        clean("unknown://bucket", older_than_s=1)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(LocalError, match="there is no folder"):
        clean(str(tmp_path / "file"), older_than_s=1)


def test_the_command_cleans(check: ClaimCheck, capsys: pytest.CaptureFixture[str]) -> None:
    ClaimStore(check, clock=lambda: NOON_S).put(Message(BIG))
    from rmqio.cli.main import main

    def run(*argv: str, status: int = 0) -> str:
        assert main(["claims", *argv]) == status
        out, err = capsys.readouterr()
        return out + err

    assert run("clean", check.path, "--older_than", "7d", "--dry_run") == (
        "1 object of 2026-03-05 to 2026-03-05 would be removed, 3,000 bytes\n"
    )
    assert json.loads(run("clean", check.path, "--older-than", "7d", "--json")) == {
        "objects": 1, "bytes": 3_000, "days": ["2026-03-05"], "dry_run": False,
    }  # fmt: skip
    assert "is not an age like 7d" in run("clean", check.path, "--older_than", "week", status=2)
    assert "rmqio claims clean" in run()
    assert issubclass(ClaimStoreError, RmqioError)
