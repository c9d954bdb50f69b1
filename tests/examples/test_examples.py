"""Each program of `examples/`, with the command that its text gives: what it prints, and what is then in its topic."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from examples.write_with_keys import order
from rmqio import Message, Record
from rmqio.local import LocalRocketMQ
from tests.examples.bench import Bench
from tests.examples.programs import PROGRAMS
from tests.helpers.servers.jobs import Job, started

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.examples, pytest.mark.timeout(600)]

ORDERS: Final = [order(number) for number in range(12)]
BROKEN: Final = Message(b"oops", keys=["o-x"])
DIRECT: Final = ("--runner=DirectRunner",)
SPARK: Final = ("--runner=SparkRunner",)

Sent = tuple[str | None, tuple[str, ...], str | None, str]
"""Tag, keys, sharding key and body."""


def sent(message: Message | Record) -> Sent:
    return message.tags, tuple(message.keys), message.sharding_key, message.body.decode()


TOTALS: Final[list[Sent]] = [
    (None, (customer,), None, f'{{"customer":"{customer}","total":{total}}}')
    for customer, total in (("c-0", 45.0), ("c-1", 55.0), ("c-2", 65.0))
]
DISCOUNTED: Final[list[Sent]] = [
    (*sent(each)[:3], json.dumps(fields | {"amount": fields["amount"] * 0.9}))
    for each in ORDERS
    for fields in [json.loads(each.body)]
]


class Case(NamedTuple):
    """The expected output of a program for the orders."""

    prints: int
    """The number of lines, of which its text shows some."""
    sink: str = ""
    """The option for the topic that is looked at; empty: none is."""
    holds: Sequence[Sent] = ()
    orders: Sequence[Message] = ORDERS


BEAM: Final = {
    "write_with_keys.py": Case(12, "sink_topic", [sent(each) for each in ORDERS]),
    "read_and_print.py": Case(12),
    "filter_by_tag.py": Case(3, "sink_topic", [sent(each) for each in ORDERS if each.tags == "refund"]),
    "batches.py": Case(12, "sink_topic", DISCOUNTED),
    "windowed_count.py": Case(4),
    "json_rows.py": Case(3, "sink_topic", TOTALS),
    "sql_rows.py": Case(3, "sink_topic", TOTALS),
    "match_rules.py": Case(4),
    "enrich_orders.py": Case(12),
    "avro_rows.py": Case(3),
    "audit_hops.py": Case(3, "sink_topic", [sent(each) for each in ORDERS if each.tags == "sale"]),
    "big_bodies.py": Case(4),
    "hot_keys.py": Case(10),
    "dead_letters.py": Case(12, "dead_letter_topic", [sent(BROKEN)], [*ORDERS, BROKEN]),
}
PYSPARK: Final = {
    "pyspark_batch.py": Case(7, "sink_topic", TOTALS),
    "pyspark_stream.py": Case(1, "sink_topic", [(*sent(each)[:2], None, each.body.decode()) for each in ORDERS[9:]]),
}
RUNS: Final[list[tuple[str, Case, tuple[str, ...]]]] = [
    *((name, case, options) for name, case in BEAM.items() for options in (DIRECT, SPARK)),
    ("windowed_count.py", BEAM["windowed_count.py"], (*SPARK, "--streaming")),
    *((name, case, ()) for name, case in PYSPARK.items()),
]


@pytest.fixture
def bench(rocketmq: LocalRocketMQ, tmp_path: Path) -> Iterator[Bench]:
    with contextlib.closing(Bench(rocketmq, tmp_path)) as bench:
        yield bench


def shown(name: str) -> list[str]:
    """Returns the lines that the program's text shows, with single spaces between words."""
    return [" ".join(line.split()) for line in PROGRAMS[name].prints]


def require(name: str, options: Sequence[str]) -> None:
    """Skips the test if the program needs an extra that is not installed."""
    if options != DIRECT:
        pytest.importorskip("pyspark", reason="it needs the extra 'spark'")
    if name == "match_rules.py":
        pytest.importorskip("msgspec", reason="it needs the extra 'rules'")
    if name == "enrich_orders.py":
        pytest.importorskip("pyarrow", reason="it needs the extra 'enrich'")
    if name == "avro_rows.py":
        pytest.importorskip("fastavro", reason="it needs the extra 'avro'")


@pytest.mark.parametrize(
    ("name", "case", "options"), RUNS, ids=[" ".join([name, *options]) for name, _, options in RUNS]
)
def test_it_prints_what_its_text_shows_and_writes_what_it_should(
    name: str, case: Case, options: tuple[str, ...], bench: Bench
) -> None:
    require(name, options)
    bench.create(name, case.orders)
    done = bench.run(name, *options)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if SPARK[0] in options:
        # Workers print to standard error, beside what Spark itself prints
        printed = bench.lines(done.stdout + done.stderr)
    else:
        printed = bench.lines(done.stdout)
        assert len(printed) == case.prints
    assert [printed.count(line) for line in shown(name)] == [1] * len(shown(name)), done.stdout + done.stderr
    if options == DIRECT:
        assert done.stderr == ""
    if case.sink:
        assert sorted(map(sent, bench.holds(name, case.sink))) == sorted(case.holds)


def test_every_program_is_run() -> None:
    assert {*BEAM, *PYSPARK, "replay.py"} == set(PROGRAMS)
    assert all(program.prints for program in PROGRAMS.values())


def test_orders_with_the_same_sharding_key_are_in_one_queue(bench: Bench) -> None:
    bench.create("write_with_keys.py")
    done = bench.run("write_with_keys.py")
    assert done.returncode == 0, done.stderr
    places = {(each.sharding_key, each.queue_id) for each in bench.holds("write_with_keys.py", "sink_topic")}
    assert len(places) == 3


def test_the_audit_says_between_which_hops_refunds_were_lost(bench: Bench) -> None:
    bench.create("audit_hops.py", ORDERS)
    done = bench.run("audit_hops.py")
    assert done.returncode == 0, done.stderr
    told = shlex.split(PROGRAMS["audit_hops.py"].blocks[2][0])
    done = bench.run_told("audit_hops.py", told, "--json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert (report["sent"], report["lost"], report["doubled"]) == (12, 3, 0)
    lost = {(*each["keys"], each["where"]) for each in report["messages"]["lost"]}
    assert lost == {(key, "between 'read' and 'sales'") for key in ("o-3", "o-7", "o-11")}


def test_avro_orders_are_stored_as_their_class_says(bench: Bench) -> None:
    require("avro_rows.py", DIRECT)
    from examples.avro_rows import Order
    from rmqio.serde.avro import AvroDeserializer, schema_of_class

    bench.create("avro_rows.py")
    done = bench.run("avro_rows.py")
    assert done.returncode == 0, done.stderr
    decode = AvroDeserializer(schema_of_class(Order), to=Order)
    orders: list[Order] = [decode(record) for record in bench.holds("avro_rows.py", "sink_topic")]
    found = {each.order_id: str(each.amount) for each in orders}
    assert found == {f"o-{number}": f"{number * 2.5:.2f}" for number in range(12)}


def test_a_dead_letter_is_sent_back_once(bench: Bench) -> None:
    bench.create("dead_letters.py", [*ORDERS, BROKEN])
    done = bench.run("dead_letters.py")
    assert done.returncode == 0, done.stderr

    def copies() -> int:
        return [each.body for each in bench.holds("dead_letters.py", "source_topic")].count(BROKEN.body)

    done = bench.run("replay.py", "--dry_run")
    assert "1 message would be sent" in done.stdout, done.stderr
    assert copies() == 1
    done = bench.run("replay.py")
    assert done.returncode == 0, done.stderr
    assert bench.lines(done.stdout)[:2] == shown("replay.py")
    assert copies() == 2
    done = bench.run("replay.py")
    assert "0 messages were sent" in done.stdout, done.stderr
    assert copies() == 2


@pytest.mark.parametrize(
    ("name", "options"),
    [("windowed_count.py", (*SPARK, "--streaming")), ("pyspark_stream.py", ())],
    ids=["windowed_count.py", "pyspark_stream.py"],
)
def test_a_stream_ends_on_ctrl_c(
    name: str, options: tuple[str, ...], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(name, options)
    for variable, value in bench.environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(bench.folder)
    bench.create(name, ORDERS)
    command = bench.command(name, *options, bench.checkpoint)
    with started(Job([word for word in command if not word.startswith("--stop")], bench.folder)) as job:

        def has_begun() -> bool:
            if name in PYSPARK:
                return len(bench.holds(name, "sink_topic")) == len(PYSPARK[name].holds)
            return shown(name)[0] in bench.lines(job.log.read_text())

        job.wait_until(has_begun, "the first output", details=lambda: bench.holds(name, "sink_topic"), still_s=400)
        os.killpg(job.process.pid, signal.SIGINT)  # a terminal sends it to the whole group
        job.done()
    if name in PYSPARK:  # whose client library may log the interrupted request, with a traceback
        # Spark may have been interrupted before it reported the micro-batch whose messages are in the sink.
        assert set(bench.lines(job.output.read_text())) <= set(shown(name))
    else:
        assert "Traceback" not in job.log.read_text()
