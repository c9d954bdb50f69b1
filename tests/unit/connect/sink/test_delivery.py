"""One batch until it is safe, against a sink in memory that is away, busy, or refuses rows, as hypothesis says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.connect import Batching, BatchSink, Retry, RowRefused, Verdict, Written
from rmqio.connect import delivery as deliveries
from rmqio.connect.delivery import Buffer, Delivery, Item
from rmqio.connect.sink import PerhapsRefused, SinkFailed
from rmqio.errors import LocalError, SerdeError


class Memory(BatchSink):
    """Keeps rows. Its script says for each call: "away", "again" or "ok"; rows that are negative are refused."""

    name = "memory"

    def __init__(self, script: Sequence[str] = (), *, all_or_nothing: bool = True) -> None:
        self.script, self.all_or_nothing = list(script), all_or_nothing
        self.rows: list[Any] = []
        self.calls: list[list[Any]] = []

    def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
        self.calls.append(list(rows))
        step = self.script.pop(0) if self.script else "ok"
        if step == "away":
            raise ConnectionRefusedError("nobody is there")
        if self.all_or_nothing and any(row < 0 for row in rows):
            raise RowRefused("a row is negative")
        refused = {place: RowRefused("negative") for place, row in enumerate(rows) if row < 0}
        again = {}
        if step == "again":
            again = {place: OSError("busy") for place, row in enumerate(rows) if row >= 0 and place % 2}
        self.rows += [row for place, row in enumerate(rows) if place not in refused and place not in again]
        return Written(refused, again) if refused or again else None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def delivery(sink: BatchSink, retry: Retry | None = None) -> tuple[Delivery, Clock]:
    clock = Clock()
    return Delivery(sink, retry or Retry(), clock=clock, sleep=clock.sleep, spread=lambda: 1.0), clock


def items(rows: Sequence[Any]) -> list[Item]:
    return [Item(row, row, None, None) for row in rows]


@given(
    st.lists(st.integers(-3, 20), min_size=1, max_size=40),
    st.lists(st.sampled_from(["away", "again", "ok"]), max_size=8),
    st.booleans(),
)
def test_every_row_is_written_once_or_refused_once(rows: list[int], script: list[str], all_or_nothing: bool) -> None:
    sink = Memory(script, all_or_nothing=all_or_nothing)
    refused = delivery(sink)[0].write(None, items(rows))
    assert Counter(item.row for item, _ in refused) == Counter(row for row in rows if row < 0)
    assert Counter(sink.rows) == Counter(row for row in rows if row >= 0)


@given(st.lists(st.integers(-2, 50), min_size=1, max_size=60), st.lists(st.sampled_from(["away", "ok"]), max_size=6))
def test_halved_batches_keep_the_order(rows: list[int], script: list[str]) -> None:
    sink = Memory(script)
    delivery(sink)[0].write(None, items(rows))
    assert sink.rows == [row for row in rows if row >= 0]


def test_waits_double_up_to_the_longest() -> None:
    sink = Memory(["away"] * 6)
    found, clock = delivery(sink, Retry(first_wait_s=1, max_wait_s=5, give_up_after_s=100))
    assert found.write(None, items([1])) == []
    assert (clock.waits, found.retries) == ([1, 2, 4, 5, 5, 5], 6)


def test_it_gives_up_and_says_after_how_many_tries() -> None:
    found, _ = delivery(Memory(["away"] * 99), Retry(first_wait_s=1, max_wait_s=5, give_up_after_s=10))
    with pytest.raises(SinkFailed, match="memory: gave up after 4 tries in 7 s: nobody is there"):
        found.write(None, items([1]))


def test_retries_can_be_turned_off() -> None:
    sink = Memory(["away"])
    with pytest.raises(SinkFailed, match="after 1 tries"):
        delivery(sink, Retry(give_up_after_s=0))[0].write(None, items([1]))
    assert sink.calls == [[1]]


def test_a_batch_that_goes_on_does_not_run_out_of_tries() -> None:
    sink = Memory(["again"] * 5)
    found, clock = delivery(sink, Retry(first_wait_s=6, max_wait_s=6, give_up_after_s=7))
    assert found.write(None, items(range(32))) == []
    assert (sorted(sink.rows), clock.now) == ([*range(32)], 30)


def test_an_error_of_the_set_up_drops_nothing() -> None:
    class NoTable(Memory):
        def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
            raise LocalError("there is no such table")

    with pytest.raises(LocalError, match="no such table"):
        delivery(NoTable())[0].write(None, items([1, 2]))


def test_a_sink_opens_when_its_system_is_there() -> None:
    class Late(Memory):
        def open(self) -> None:
            self.calls.append([])
            if len(self.calls) < 3:
                raise TimeoutError("starting")

    sink = Late()
    delivery(sink)[0].open()
    assert len(sink.calls) == 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"refused": {}}, "it must return None or Written"),
        (Written({2: RowRefused("x")}), "wrong positions of a batch of 2"),
        (Written({0: RowRefused("x")}, {0: OSError()}), "wrong positions"),
    ],
)
def test_a_sink_that_answers_nonsense_is_told(answer: Any, message: str) -> None:
    class Wrong(Memory):
        def write(self, rows: Sequence[Any], destination: Any) -> Any:
            return answer

    with pytest.raises(LocalError, match=message):
        delivery(Wrong())[0].write(None, items([1, 2]))


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ConnectionResetError(), Verdict.RETRY),
        (TimeoutError(), Verdict.RETRY),
        (RowRefused("x"), Verdict.ROWS),
        (SerdeError("x"), Verdict.ROWS),
        (LocalError("x"), Verdict.FAIL),
        (ValueError("x"), Verdict.FAIL),
    ],
)
def test_what_errors_mean_by_default(error: Exception, verdict: Verdict) -> None:
    assert BatchSink().judge(error) is verdict


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 60)), max_size=80))
def test_batches_keep_their_limits_and_lose_nothing(rows: list[tuple[str, int]]) -> None:
    options = Batching(max_rows=5, max_bytes=100, max_total_bytes=150)
    buffer = Buffer(options)
    taken: list[tuple[Any, list[Item]]] = []
    for number, (destination, size) in enumerate(rows):
        taken += buffer.add(Item((number, size), None, None, None), destination, size, float(number))
        assert buffer.total <= 150
    taken += buffer.all()
    assert buffer.total == 0
    assert buffer.oldest() is None
    for _, batch in taken:
        assert len(batch) <= 5
        assert len(batch) == 1 or sum(item.row[1] for item in batch) <= 100
    for name in "abcd":
        written = [item.row for destination, batch in taken if destination == name for item in batch]
        assert written == [(number, size) for number, (destination, size) in enumerate(rows) if destination == name]


def test_the_oldest_destination_is_due_first() -> None:
    buffer = Buffer(Batching())
    for now, name in enumerate("abab"):
        assert buffer.add(Item(name, None, None, None), name, 1, float(now)) == []
    assert buffer.oldest() == 0.0
    assert [name for name, _ in buffer.older_than(0.5)] == ["a"]
    assert buffer.oldest() == 1.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Batching(max_rows=0), "Batching.max_rows is 0"),
        (lambda: Batching(max_wait_s=-1), "Batching.max_wait_s is -1"),
        (lambda: Batching(max_total_bytes=10), "lower max_bytes"),
        (lambda: Retry(first_wait_s=0), "Retry.first_wait_s is 0"),
        (lambda: Retry(give_up_after_s=-1), "Retry.give_up_after_s is -1"),
    ],
)
def test_options_are_checked(build: Any, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        build()


MANY = [-1 - each for each in range(20)]


@pytest.mark.parametrize("all_or_nothing", [True, False])
@pytest.mark.parametrize(
    ("batches", "fails"),
    [
        ([MANY], True),  # as a column of another type
        ([MANY[1:]], False),  # they could be the only bad ones, and stop the job at each restart
        ([[*MANY, -100]], True),  # of this one it is known
        ([[-100 - each for each in range(20)]], False),
        ([*([each] for each in MANY)], True),  # a stream of small bundles
        ([*([each] for each in MANY[1:])], False),
        ([[*MANY, 3]], False),
        ([MANY[1:], [3], MANY], False),
    ],
)
@pytest.mark.parametrize("writers", ["one", "one for each batch"])
def test_what_many_rows_have_and_none_passes_is_an_error_of_the_set_up(
    monkeypatch: pytest.MonkeyPatch, batches: list[list[int]], fails: bool, all_or_nothing: bool, writers: str
) -> None:
    """Such errors are also those of single rows: a whole table went to the dead letters."""
    monkeypatch.setattr(deliveries, "_doubts", Counter())

    class Doubtful(Memory):
        def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
            kinds = {place: PerhapsRefused if row > -100 else RowRefused for place, row in enumerate(rows) if row < 0}
            if kinds and self.all_or_nothing:
                raise next(iter(kinds.values()))("of another type")
            return Written({place: kind("of another type") for place, kind in kinds.items()})

    sink = Doubtful(all_or_nothing=all_or_nothing)
    found, _ = delivery(sink)
    *first, last = batches
    for each in first:
        assert len(found.write("t", items(each))) == len([row for row in each if row < 0])
        if writers != "one" and min(each) < 0:
            found, _ = delivery(sink)
    if not fails:
        assert [item.row for item, _ in found.write("t", items(last))] == [row for row in last if row < 0]
    else:
        with pytest.raises(
            LocalError, match=r"memory takes none of 20 rows, .* for other rows: of another type\. Change"
        ):
            found.write("t", items(last))
