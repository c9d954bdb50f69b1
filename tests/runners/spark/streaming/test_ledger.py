"""Half a million orders through windows, while everything that can be killed is killed: none is lost or counted twice.

`make test-all` runs it, with its own broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.local import LocalRocketMQ
from tests.helpers.ledgers.orders import QUEUES, Bench
from tests.helpers.servers.jobs import Job, started
from tests.helpers.waiting import at_most, needed

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(1800)]

COUNT = 500_000
LATER = 50_000  # sent when the fifth queue exists
AT_A_TIME = "--max_records_per_trigger=10000"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with LocalRocketMQ() as broker, needed(broker.pid):
        made = Bench(broker, tmp_path)
        yield made
        made.client.close()


def run_until(job: Job, bench: Bench, count: float) -> None:
    """Waits until `count` orders are committed. Until then, the group's offsets must not run ahead."""

    def are_committed() -> bool:
        assert_never_ahead(bench)
        return bench.committed() >= count

    job.wait_until(
        are_committed,
        f"{count:,.0f} to be committed",
        progress=bench.committed,
        details=bench.group_offsets,
        still_s=300,
    )


def assert_never_ahead(bench: Bench) -> None:
    """Asserts that the group's offsets are not ahead of what Spark has committed since."""
    of_group = bench.group_offsets()
    known = bench.checkpoint_offsets()
    assert all(offset <= known.get(queue, 0) for queue, offset in of_group.items())


def assert_in_the_middle(bench: Bench, before: int, left: int) -> None:
    """Asserts that 20 to 80 % of the orders that were left at the start were done when it was killed."""
    done = (bench.committed() - before) / left
    assert 0.2 <= done <= 0.8, done


def test_nothing_is_lost_or_counted_twice_whatever_is_killed(bench: Bench) -> None:
    bench.send(COUNT - LATER)
    for _ in range(4):
        before = bench.committed()
        left = bench.sent - before
        with started(bench.job(AT_A_TIME)) as job:
            run_until(job, bench, before + 0.22 * left)
            job.kill()
        assert_in_the_middle(bench, before, left)
        assert_never_ahead(bench)
        print(f"driver killed at {bench.committed():,} of {COUNT:,}")

    before = bench.committed()
    left = bench.sent - before
    program = ("-m", "tests.helpers.pipelines.killed_before_commit", "6")
    with started(bench.job(AT_A_TIME, program=program)) as job:
        job.process.wait(at_most(300))
        assert job.process.returncode == -9, job.log.read_text()
    assert_in_the_middle(bench, before, left)
    assert_never_ahead(bench)
    print(f"driver killed between send and commit at {bench.committed():,}")

    bench.broker.create_topic(bench.source, queues=QUEUES + 1)
    bench.send(LATER, QUEUES + 1)
    before = bench.committed()
    left = bench.sent - before
    with started(bench.job(AT_A_TIME)) as job:
        run_until(job, bench, before + 0.25 * left)
        print(f"worker killed at {bench.committed():,}: {job.kill_worker()}")
        run_until(job, bench, before + 0.4 * left)
        bench.broker.kill()
        time.sleep(2)
        bench.broker.restart()
        print(f"broker killed and started again at {bench.committed():,}")
        run_until(job, bench, before + 0.55 * left)
        print(f"worker killed at {bench.committed():,}: {job.kill_worker()}")
        bench.until_there(job)
        bench.until_committed(job)
        assert job.interrupt() == 130, job.log.read_text()
    assert_never_ahead(bench)
    assert set(bench.group_offsets()) == set(range(QUEUES + 1))
    print(f"{bench.check():,} copies of totals too many, none that differs, of {len(bench.wanted):,}")
