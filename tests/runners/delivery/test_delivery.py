"""The source's eight and the sink's five cases of Flink's connector test framework, on all runners.

Each message has its own number. A ledger of (queue, offset, number) finds lost, duplicated, reordered and skipped
messages. A run that several cases check is run once. docs/delivery-guarantees.md lists the cases.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from rmqio.local import LocalRocketMQ
from tests.helpers.ledgers.delivery import DIRECT, MODES, Copies, Mode, Round, held_by, killable, rounds
from tests.helpers.ledgers.ledger import Findings
from tests.helpers.pipelines.holding import Hold

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 500
WORKERS = (2, 2, 4, 2)
"""The workers of runs that continue from each other: the same number, more, fewer."""
SAVEPOINT, UP, DOWN = 1, 2, 3
IDLE = 4
"""The number of workers if there is one queue."""
ONE_WORKER = "the in-process runner has one worker, in the program itself"


class Runs:
    """The runs that several cases share. Each is run once for each runner."""

    def __init__(self, broker: LocalRocketMQ, folder: Path) -> None:
        self._broker, self._folder = broker, folder
        self._done: dict[Any, Any] = {}
        self._open: list[Copies] = []

    def copies(self, *counts: int) -> Copies:
        self._open.append(Copies(self._broker, self._folder, *counts))
        return self._open[-1]

    def once(self, what: str, mode: Mode, run: Callable[[], Any]) -> Any:
        if (what, mode) not in self._done:
            self._done[what, mode] = run()
        return self._done[what, mode]

    def ended(self, mode: Mode, queues: int) -> Copies:
        """Returns a run to the end of what is available."""
        workers = IDLE if queues == 1 and mode is not DIRECT else WORKERS[0]

        def run() -> Copies:
            copies = self.copies(*[COUNT] * queues)
            copies.run(mode, workers)
            return copies

        found: Copies = self.once(f"{queues} queues", mode, run)
        return found

    def restarted(self, mode: Mode) -> tuple[Copies, list[Round]]:
        """Returns runs that continue from each other. The first run of a bounded mode is the one of `ended`."""

        def run() -> tuple[Copies, list[Round]]:
            if mode.endless:
                copies = self.copies(*[COUNT] * 4)
                return copies, rounds(copies, mode, WORKERS)
            copies = self.ended(mode, queues=4)
            first = Round(WORKERS[0], copies.findings(), copies.sent - copies.copied)
            return copies, [first, *rounds(copies, mode, WORKERS[1:])]

        found: tuple[Copies, list[Round]] = self.once("rounds", mode, run)
        return found

    def close(self) -> None:
        for each in self._open:
            each.close()


@pytest.fixture(scope="module")
def runs(rocketmq: LocalRocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with contextlib.closing(Runs(rocketmq, tmp_path_factory.mktemp("delivery"))) as made:
        yield made


@pytest.fixture(params=MODES, ids=[each.name for each in MODES])
def mode(request: pytest.FixtureRequest) -> Mode:
    found: Mode = request.param
    return found


# ---- the source -----------------------------------------------------------------------------------------------------


def test_source_single_queue(runs: Runs, mode: Mode) -> None:
    assert not runs.ended(mode, queues=1).findings()


def test_source_several_queues(runs: Runs, mode: Mode) -> None:
    assert not runs.ended(mode, queues=4).findings()


def test_source_idle_reader(runs: Runs, mode: Mode) -> None:
    """There are more workers than queues. Idle workers must not keep the job from its end: four share one queue."""
    if mode is DIRECT:
        pytest.skip(ONE_WORKER)
    assert not runs.ended(mode, queues=1).findings()


def test_source_metrics(runs: Runs, mode: Mode) -> None:
    copies = runs.ended(mode, queues=4)
    assert copies.outputs[0].startswith(f"copying.py: {4 * COUNT} read, ")


@pytest.mark.parametrize("number", [SAVEPOINT, UP, DOWN], ids=["savepoint", "scale_up", "scale_down"])
def test_source_goes_on(runs: Runs, mode: Mode, number: int) -> None:
    if mode is DIRECT and number != SAVEPOINT:
        pytest.skip(ONE_WORKER)
    _, those = runs.restarted(mode)
    before, after = those[number - 1], those[number]
    assert (before.workers, after.workers) == (WORKERS[number - 1], WORKERS[number])
    assert not before.findings
    assert not after.findings
    assert (before.left > 0) == mode.endless, "it is stopped while messages come in"


def test_source_worker_killed(runs: Runs, mode: Mode, tmp_path: Path) -> None:
    """Set A, a killed worker, set B: nothing is lost, out of order or skipped. There may be duplicates."""
    if mode is DIRECT:
        pytest.skip(ONE_WORKER)
    # A thousand make a batch, which is sent: the rest of the bundle is still to come.
    copies, hold = runs.copies(2_000, 2_000), Hold(tmp_path / "hold", 1_500).begin()
    with killable(mode) as with_workers, copies.running(with_workers, 2, *hold.flags) as job:
        assert with_workers.kill is not None
        job.wait_until(
            lambda: hold.queues() >= held_by(mode) and copies.copied,
            "the queues to be held in the middle",
            progress=lambda: copies.copied,
            details=lambda: f"{hold.queues()} are held; {copies.findings()}",
        )
        with_workers.kill(job)
        assert copies.copied < copies.sent
        hold.release()
        if mode.endless:
            copies.send(COUNT)
            job.wait_until(
                lambda: not copies.findings().lost,
                "all",
                progress=lambda: copies.copied,
                details=lambda: copies.findings().lost[:10],
            )
            assert job.interrupt() == 130, job.log.read_text()
        else:
            job.done()
    found = copies.findings()
    assert found == Findings(duplicated=found.duplicated)


# ---- the sink -------------------------------------------------------------------------------------------------------


def assert_all_there_once(copies: Copies, but: int = 0) -> None:
    """Asserts that each copy has the id of its original, so that readers can drop duplicates."""
    pairs = copies.pairs()
    assert len(pairs) == copies.sent - but
    assert len({original.message_id for _, original in pairs}) == len(pairs)
    assert all(copy.message_id == original.message_id for copy, original in pairs)
    assert all(copy.sharding_key == str(original.queue_id) for copy, original in pairs)


def test_sink_basic(runs: Runs, mode: Mode) -> None:
    assert_all_there_once(runs.ended(mode, queues=4))


def test_sink_metrics(runs: Runs, mode: Mode) -> None:
    copies = runs.ended(mode, queues=4)
    assert copies.outputs[0].endswith(f", {4 * COUNT} sent\n")


@pytest.mark.parametrize("number", [SAVEPOINT, UP, DOWN], ids=["savepoint", "scale_up", "scale_down"])
def test_sink_goes_on(runs: Runs, mode: Mode, number: int) -> None:
    if mode is DIRECT and number != SAVEPOINT:
        pytest.skip(ONE_WORKER)
    copies, those = runs.restarted(mode)
    assert those[number].workers == WORKERS[number]
    assert_all_there_once(copies, but=those[-1].left)
