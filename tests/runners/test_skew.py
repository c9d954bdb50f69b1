"""Salted combines, bounded batches, claim checks, a limit and the report on skew: the same on all runners."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio import ClaimCheck, Message, MessageQueue, Record
from rmqio.claims.store import ClaimStore
from rmqio.client import RemotingProducer
from rmqio.options import ClientOptions
from rmqio.runners.capabilities import Mode
from rmqio.runners.flink.jobserver import SERVERS
from rmqio.skew import HeavyKey
from tests.helpers.check import read_topic
from tests.helpers.ledgers.ledger import Lab
from tests.helpers.pipelines.skewed import (
    BATCH,
    COUNTS,
    MOST_BYTES,
    PERIOD_S,
    RATE,
    SIZE_S,
    WINDOWINGS,
    body_of,
    key_of,
    run,
)
from tests.helpers.waiting import until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    # Beam's worker in this process may still be reading after its job is over. Its thread then ends with this error.
    pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning"),
]

FLAGS = {
    Mode.DIRECT: "DirectRunner",
    Mode.SPARK: "SparkRunner",
    Mode.SPARK_STREAMING: "SparkRunner --streaming",
    Mode.FLINK: "FlinkRunner --parallelism=1",
}
RUNNERS = [pytest.param(flags, id=flags, marks=pytest.mark.shows(mode)) for mode, flags in FLAGS.items()]
TOTAL = sum(COUNTS)


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    SERVERS.stop_all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("claims")


@pytest.fixture(scope="module")
def source(lab: Lab, folder: Path) -> str:
    """A topic with two queues, whose numbers begin with 0 and go on in the second one."""
    name = f"skew-{uuid.uuid4().hex[:10]}"
    lab.broker.create_topic(name, queues=len(COUNTS))
    store = ClaimStore(ClaimCheck(str(folder), above_bytes=10_000))
    with RemotingProducer(ClientOptions(lab.broker.name_server), "skew") as producer:
        for queue_id, count in enumerate(COUNTS):
            queue = MessageQueue(name, lab.broker.name, queue_id)
            begin = sum(COUNTS[:queue_id])
            made = [Message(body_of(n), keys=(key_of(n),)) for n in range(begin, begin + count)]
            producer.send_batch([store.put(each) if store.is_big(each) else each for each in made], queue)
    return name


def in_windows(records: Sequence[Record], period_s: int) -> set[tuple[str, str]]:
    """Returns key and text of what must come out of windows that begin in each period."""
    found = defaultdict(list)
    for number, record in enumerate(records):
        newest = record.born_timestamp_ms // 1000 // period_s * period_s
        for start in range(newest, newest - SIZE_S, -period_s):
            found[key_of(number), start].append(number)
    return {(key, " ".join(map(str, (start, *numbers)))) for (key, start), numbers in found.items()}


@pytest.mark.parametrize("runner", RUNNERS)
def test_nothing_is_lost_or_counted_twice(runner: str, source: str, folder: Path, lab: Lab, tmp_path: Path) -> None:
    sink = f"{source}-{uuid.uuid4().hex[:6]}"
    lab.broker.create_topic(sink, queues=1)
    flags = f"--runner={runner}".split()
    flags += [f"--checkpoint_dir={tmp_path}/checkpoint"] if "streaming" in runner else []
    report = run(source, sink, lab.broker.name_server, str(folder), flags)
    by_key: Counter[str] = Counter()
    for number in range(TOTAL):
        by_key[key_of(number)] += number
    sent = sorted(read_topic(lab.client, source), key=lambda each: (each.queue_id, each.queue_offset))
    windows = {name: in_windows(sent, PERIOD_S if name == "sliding" else SIZE_S) for name in WINDOWINGS}
    least = len(by_key) + TOTAL + sum(map(len, windows.values()))
    totals = {"total", "emitted", *windows}

    def found() -> Counter[str | None]:
        return Counter(each.tags for each in read_topic(lab.client, sink) if each.tags in totals)

    until(lambda: found().total() >= least, f"{least} totals", progress=found, details=found)
    stored = ClaimStore(ClaimCheck(str(folder))).resolve([*read_topic(lab.client, sink)])
    assert not stored[1]
    records = stored[0]
    emitted_ms = sorted(int(each.body) for each in records if each.tags == "emitted")
    assert len(emitted_ms) == TOTAL
    if "streaming" not in runner:  # where a micro-batch may read at once what the time since the last one allows
        # A second's worth is emitted at once, and another one can be on its way when the first element is. However
        # busy the machine is, the others cannot come earlier than the limit lets them.
        assert emitted_ms[-1] - emitted_ms[0] >= 1000 * (TOTAL - 2 * RATE) / RATE
    assert {each.keys[0]: int(each.body) for each in records if each.tags == "total"} == by_key
    assert sum(each.tags == "total" for each in records) == len(by_key)
    for name, expected in windows.items():
        # Beam's GroupByKey on Flink ends a window a second time, with nothing in it: as in test_live_windows.
        panes = [
            (each.keys[0], each.body.decode()) for each in records if each.tags == name and b" " in each.body.strip()
        ]
        assert sorted(panes) == sorted(expected), name
    batches = [(each.keys[0], [*map(int, each.body.split())]) for each in records if each.tags == "batch"]
    assert all(0 < len(numbers) <= BATCH for _, numbers in batches)
    assert sorted(n for _, numbers in batches for n in numbers) == [*range(TOTAL)]
    assert all(key_of(n) == key for key, numbers in batches for n in numbers)
    sizes = [int(each.body) for each in records if each.tags == "size"]
    assert sum(sizes) == TOTAL, "two transforms with timers do not get into each other's way"
    assert max(sizes) <= MOST_BYTES
    (shuffle,) = [each for each in report.shuffles if each.name.startswith("Totals")]
    hottest = HeavyKey("'hot'", sum(key_of(n) == "hot" for n in range(TOTAL)))
    assert (shuffle.elements, shuffle.keys[0], report.queues[0].records) == (TOTAL, hottest, COUNTS[0])
