"""The pipelines of this project give the same on all runners from the same input: what is in the sink is compared."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.pipelines import province, windowed_orders, word_count
from rmqio.pipelines.addresses import addresses
from rmqio.pipelines.check import read_topic
from rmqio.pipelines.word_count import words
from tests.helpers.ledger import Lab
from tests.helpers.raw_send import send_all

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

QUEUES = 4
COUNT = 400
BEGIN_MS = 1_700_000_000_000
RUNNERS = ["DirectRunner", "SparkRunner", "SparkRunner --streaming", "FlinkRunner", "FlinkRunner --streaming"]


class Case(NamedTuple):
    """A pipeline, its input, and what of a message in the sink is its result."""

    main: Callable[[list[str]], int]
    bodies: list[dict[str, Any] | str]
    read: Callable[[dict[str, Any]], tuple[Any, Any]]
    """What a result is of, and the result. Where there are several, the last one counts."""
    wanted: dict[Any, Any]


def province_case() -> Case:
    from rmqio.pipelines.provinces import province_of

    found = list(addresses(COUNT))
    wanted = {each["id"]: province_of(each["address"]) for each in found}
    return Case(province.main, list(found), lambda body: (body["id"], body["province"]), wanted)


def orders_case() -> Case:
    orders = [{"key": f"k{n % 7}", "amount": n, "time_ms": BEGIN_MS + 150 * n} for n in range(COUNT)]
    wanted: dict[Any, Any] = {}
    for order in orders:
        at = order["key"], int(order["time_ms"]) // 10_000 * 10_000
        count, total = wanted.get(at, (0, 0))
        wanted[at] = count + 1, total + order["amount"]
    return Case(
        windowed_orders.main,
        list(orders),
        lambda body: ((body["key"], body["start_ms"]), (body["count"], body["sum"])),
        wanted,
    )


def words_case() -> Case:
    sentences = [f"The number {n} isn't {n % 7}, the remainder is 余{n % 23}" for n in range(COUNT)]
    wanted: dict[Any, Any] = {}
    for sentence in sentences:
        for word in words(sentence):
            wanted[word] = wanted.get(word, 0) + 1
    return Case(word_count.main, list(sentences), lambda body: (body["word"], body["count"]), wanted)


CASES = {"province": province_case, "windowed_orders": orders_case, "word_count": words_case}


class Filled(NamedTuple):
    case: Case
    source: str


@pytest.fixture(scope="module")
def lab(rocketmq: LocalRocketMQ) -> Iterator[Lab]:
    made = Lab(rocketmq)
    yield made
    made.close()


@pytest.fixture(scope="module", params=CASES)
def filled(request: pytest.FixtureRequest, lab: Lab) -> Filled:
    """A pipeline, and a topic with its input, for all runners the same one."""
    case = CASES[request.param]()
    source = f"everywhere-{uuid.uuid4().hex[:12]}"
    lab.broker.create_topic(source, queues=QUEUES)
    bodies = [(each if isinstance(each, str) else json.dumps(each)).encode() for each in case.bodies]
    for number in range(QUEUES):
        queue = MessageQueue(source, lab.broker.name, number)
        send_all(lab.broker.broker, queue, [Message(body) for body in bodies[number::QUEUES]])
    return Filled(case, source)


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_sink_holds_the_same(
    filled: Filled, runner: str, lab: Lab, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = f"everywhere-{uuid.uuid4().hex[:12]}"
    lab.broker.create_topic(sink, queues=2)
    flags = [f"--name_server={lab.broker.name_server}", f"--source_topic={filled.source}", f"--sink_topic={sink}"]
    flags += ["--start=earliest", "--stop=latest", *f"--runner={runner}".split()]
    if runner == "SparkRunner --streaming":
        flags.append(f"--checkpoint_dir={tmp_path}")
    assert filled.case.main(flags) == 0, capsys.readouterr().err
    results = [filled.case.read(json.loads(record.body)) for record in read_topic(lab.client, sink)]
    assert dict(results) == filled.case.wanted
    if filled.case.main is not word_count.main or "--streaming" not in runner:  # which writes totals on its way, too
        assert len(results) == len(filled.case.wanted)
