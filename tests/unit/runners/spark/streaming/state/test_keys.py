"""State by key and the index of keys by time, over many micro-batches, compared with a dict and a list."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqio.runners.spark.streaming.state import EVENT, HOLD, NEVER, PROCESSING, Keys, Notes, Store, Times

pytestmark = [pytest.mark.slow]

SECOND = 1_000_000
KEY = st.integers(0, 400).map(lambda number: b"key-%d" % number)


class Entries(dict[bytes, bytes]):
    """Entries in memory, as they stay between micro-batches."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def remove(self, key: bytes) -> None:
        self.pop(key, None)


# ---- records by key -------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.lists(st.tuples(KEY, st.none() | st.binary(max_size=8)), max_size=30),
            st.tuples(st.integers(0, 400), st.integers(0, 400)).map(
                lambda ends: [(b"key-%d" % number, b"%d" % number) for number in range(min(ends), max(ends))]
            ),
            st.tuples(st.integers(0, 400), st.integers(0, 400)).map(
                lambda ends: [(b"key-%d" % number, None) for number in range(min(ends), max(ends))]
            ),
        ),
        max_size=6,
    )
)
def test_keys_are_a_dict_that_outlives_micro_batches(batches: list[list[tuple[bytes, bytes | None]]]) -> None:
    entries, expected = Entries(), dict[bytes, bytes]()
    for batch in batches:
        store = Store(entries)
        keys = Keys(store, 7)
        for key, record in batch:
            assert keys.get(key) == expected.get(key)
            keys.put(key, record)
            if record is None:
                expected.pop(key, None)
            else:
                expected[key] = record
            assert keys.get(key) == record
        keys.flush()
        store.flush()
        after = Keys(Store(entries), 7)
        names = {key for each in batches for key, _ in each}
        assert {key: found for key in names if (found := after.get(key)) is not None} == expected


def pages(entries: Entries) -> int:
    return sum(name[:1] == b"p" for name in entries)


def test_pages_divide_as_keys_become_many_and_an_access_reads_one_of_them() -> None:
    entries, found = Entries(), []
    for batch in range(12):
        store = Store(entries)
        keys = Keys(store, 1)
        for number in range(batch * 50, batch * 50 + 50):
            keys.put(b"key-%d" % number, b"%d" % number)
        keys.flush()
        store.flush()
        found.append(pages(entries))
    assert found == [1, 4, 4, 4, 4, 16, 16, 16, 16, 16, 16, 16]
    asked: list[bytes] = []

    class Watched(Entries):
        def get(self, key: bytes) -> bytes | None:  # type: ignore[override]
            asked.append(key)
            return entries.get(key)

    keys = Keys(Store(Watched()), 1)
    assert [keys.get(b"key-17"), keys.get(b"key-17"), keys.get(b"nothing")] == [b"17", b"17", None]
    assert 2 <= len(asked) <= 3, "the count, and the page of each key"
    largest = max(len(value) for name, value in entries.items() if name[:1] == b"p")
    assert largest < sum(map(len, entries.values())) / 4, "keys are spread over the pages"


def test_a_division_takes_the_pages_that_nothing_has_read() -> None:
    entries, names = Entries(), [b"key-%d" % number for number in range(257)]
    for some in (names[:256], names[256:]):
        store = Store(entries)
        keys = Keys(store, 1)
        for key in some:
            keys.put(key, key)
        keys.flush()
        store.flush()
    assert pages(entries) == 16
    after = Keys(Store(entries), 1)
    assert [after.get(key) for key in names] == names


def test_keys_that_are_written_again_or_removed_divide_nothing() -> None:
    entries = Entries()
    for batch in range(5):
        store = Store(entries)
        keys = Keys(store, 1)
        for number in range(50):
            keys.put(b"key-%d" % number, b"%d" % batch)
            keys.put(b"in between", b"")
            keys.put(b"in between", None)
        keys.put(b"never there", None)
        keys.flush()
        store.flush()
    assert pages(entries) == 1


def test_pages_without_keys_are_removed_and_stages_stay_apart() -> None:
    entries = Entries()
    store = Store(entries)
    first, second = Keys(store, 1), Keys(store, 2)
    for number in range(300):
        first.put(b"%d" % number, b"x")
    second.put(b"0", b"y")
    first.flush()
    second.flush()
    store.flush()
    assert pages(entries) > 4
    store = Store(entries)
    first = Keys(store, 1)
    for number in range(300):
        first.put(b"%d" % number, None)
    first.flush()
    store.flush()
    assert pages(entries) == 1
    assert [Keys(Store(entries), 1).get(b"0"), Keys(Store(entries), 2).get(b"0")] == [None, b"y"]


# ---- keys by time ---------------------------------------------------------------------------------------------------

MICROS = st.integers(-3 * SECOND, 20 * SECOND)
NOTE = st.tuples(st.sampled_from([EVENT, PROCESSING]), MICROS, KEY)
BATCH = st.tuples(st.lists(NOTE, max_size=12), st.sampled_from([EVENT, PROCESSING]), MICROS)


@settings(max_examples=200)
@given(st.lists(BATCH, max_size=8))
def test_what_is_due_comes_once_and_nothing_before_its_time(
    batches: list[tuple[list[tuple[bytes, int, bytes]], bytes, int]],
) -> None:
    entries, left = Entries(), list[tuple[bytes, int, bytes]]()
    for notes, domain, now in [*batches, ([], EVENT, 21 * SECOND), ([], PROCESSING, 21 * SECOND)]:
        store = Store(entries)
        times = Times(store, 3)
        for note in notes:
            times.note(*note)
            left.append(note)
        found = sorted(times.due(domain, now))
        assert found == sorted((key, at) for of, at, key in left if of == domain and at <= now)
        left = [each for each in left if each[0] != domain or each[1] > now]
        times.flush()
        store.flush()
        for each in (times, Times(Store(entries), 3)):
            assert each.waits_for_the_clock() == any(of == PROCESSING for of, _, _ in left)
    assert entries == {}


HOLDS = st.lists(st.tuples(st.dictionaries(KEY, st.one_of(MICROS, st.just(NEVER)), max_size=6), MICROS), max_size=8)


@settings(max_examples=200)
@given(HOLDS)
def test_the_least_hold_is_that_of_what_the_keys_hold_now(batches: list[tuple[dict[bytes, int], int]]) -> None:
    entries, heads = Entries(), dict[bytes, bytes]()
    holds: dict[bytes, int] = {}
    for changes, watermark in [*batches, (dict.fromkeys(holds, NEVER), 21 * SECOND)]:
        store = Store(entries)
        times = Times(store, 3)
        for key, hold in changes.items():
            notes = Notes(heads.get(key))
            notes.update(times, key, NEVER, NEVER, hold)
            heads[key], holds[key] = notes.head(), hold
        found = times.least_hold(watermark, lambda key, hold: Notes(heads[key]).hold == hold)
        times.flush()
        store.flush()
        wanted = min(holds.values(), default=NEVER)
        if wanted <= watermark:
            assert found == wanted
        else:
            assert found > watermark


def test_a_hold_that_was_given_up_is_forgotten() -> None:
    entries = Entries()
    store = Store(entries)
    times = Times(store, 3)
    times.note(HOLD, 50, b"a")
    times.flush()
    store.flush()
    assert entries
    store = Store(entries)
    times = Times(store, 3)
    assert times.least_hold(100 * SECOND, lambda key, hold: False) == NEVER
    times.flush()
    store.flush()
    assert entries == {}


def test_stages_have_their_own_times() -> None:
    store = Store(Entries())
    first, second = Times(store, 1), Times(store, 2)
    first.note(EVENT, 5, b"a")
    second.note(EVENT, 5, b"b")
    first.flush()
    second.flush()
    assert list(Times(store, 1).due(EVENT, 5)) == [(b"a", 5)]
    assert list(Times(store, 2).due(EVENT, 5)) == [(b"b", 5)]


# ---- notes ----------------------------------------------------------------------------------------------------------


class Noted(Times):
    """Records the notes."""

    def __init__(self) -> None:
        super().__init__(Store(Entries()), 1)
        self.found: list[tuple[bytes, int]] = []

    def note(self, domain: bytes, micros: int, key: bytes) -> None:
        assert key == b"k"
        self.found.append((domain, micros))


# successive wishes of the key (in event time, in processing time, and its hold), and what is noted for them
UPDATES = [
    ([(100, NEVER, NEVER)] * 2, [(EVENT, 100)]),
    ([(NEVER, 100, NEVER)] * 2, [(PROCESSING, 100)]),
    ([(100, 70, 50)] * 2, [(EVENT, 100), (PROCESSING, 70), (HOLD, 50)]),
    ([(100, NEVER, NEVER), (200, NEVER, NEVER)], [(EVENT, 100)]),
    ([(100, NEVER, NEVER), (90, NEVER, NEVER)], [(EVENT, 100), (EVENT, 90)]),
    ([(NEVER, NEVER, 50), (NEVER, NEVER, 60), (NEVER, NEVER, 40)], [(HOLD, 50), (HOLD, 60), (HOLD, 40)]),
    ([(NEVER, NEVER, 50), (NEVER, NEVER, NEVER), (NEVER, NEVER, 50)], [(HOLD, 50), (HOLD, 50)]),
    ([(NEVER, NEVER, NEVER)], []),
]


@pytest.mark.parametrize(("wanted", "expected"), UPDATES)
def test_a_key_is_noted_only_when_that_changes_something(
    wanted: list[tuple[int, int, int]], expected: list[tuple[bytes, int]]
) -> None:
    times, head = Noted(), None
    for each in wanted:
        notes = Notes(head)
        notes.update(times, b"k", *each)
        head = notes.head() + b"what follows in the record"
    assert times.found == expected


def test_a_note_that_came_is_made_anew_but_not_for_an_older_one() -> None:
    times, notes = Noted(), Notes()
    notes.update(times, b"k", 100, NEVER, NEVER)
    notes.update(times, b"k", 80, NEVER, NEVER)
    notes.came(EVENT, 100)
    notes.came(PROCESSING, 80)
    notes.update(times, b"k", 80, NEVER, NEVER)
    assert len(times.found) == 2
    notes.came(EVENT, 80)
    notes.update(times, b"k", 300, NEVER, NEVER)
    assert times.found[2:] == [(EVENT, 300)]
    assert Notes(notes.head()).head() == notes.head() != Notes().head()
