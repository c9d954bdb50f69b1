"""Rates of offsets, and figures in a few columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqio.watch.frames import Offsets, bar, short_age, short_count, short_rate, spark, total


def seen(*pairs: tuple[float, int], window_s: float = 10) -> Offsets:
    offsets = Offsets(window_s)
    for at, offset in pairs:
        offsets.add(at, offset)
    return offsets


def test_a_rate_needs_two_looks_and_is_a_mean_of_the_window() -> None:
    assert Offsets().rate(0) is None
    assert seen((0, 5)).rate(0) is None
    assert seen((0, 5), (1, 15)).rate(1) == 10
    steady = seen(*((float(at), at * 7) for at in range(100)))
    assert steady.rate(99) == pytest.approx(7)
    stopped = seen(*((float(at), min(at, 50) * 7) for at in range(100)))
    assert stopped.rate(99) == 0, "what was before the window does not count"


def test_commits_that_come_in_steps_are_smooth() -> None:
    commits = seen(*((float(at), at // 5 * 500) for at in range(60)))
    assert commits.rate(59) == pytest.approx(100)
    assert commits.moved_at == 55


def test_an_offset_that_goes_back_begins_anew() -> None:
    offsets = seen((0, 1_000), (1, 1_010), (2, 3))
    assert offsets.rate(2) is None
    offsets.add(4, 13)
    assert offsets.rate(4) == 5
    assert offsets.moved_at == 4


def test_a_broker_that_does_not_answer_has_no_rate_after_the_window() -> None:
    offsets = seen((0, 0), (1, 10))
    assert offsets.rate(11) == 10
    assert offsets.rate(11.5) is None


@given(st.lists(st.integers(0, 50), min_size=2, max_size=60))
def test_the_rate_is_what_came_in_the_window(steps: list[int]) -> None:
    offset, offsets, places = 0, Offsets(10), []
    for at, step in enumerate(steps):
        offset += step
        places.append(offset)
        offsets.add(float(at), offset)
    begin = max(0, len(places) - 11)
    assert offsets.rate(len(places) - 1) == pytest.approx((places[-1] - places[begin]) / (len(places) - 1 - begin))


def test_sums_of_what_is_known() -> None:
    assert total([None, 2.5, 1]) == 3.5
    assert total([None, None]) is None


@pytest.mark.parametrize(
    ("values", "columns", "shown"),
    [
        ([], 4, "    "),
        ([0, 0], 4, "  ▁▁"),
        ([0, 1, None, 1000], 4, "▁▂ █"),
        ([1, 2, 3, 4, 5, 6, 7, 8], 8, "▂▃▄▅▅▆▇█"),
        ([9, 0, 0, 0, 0, 0], 3, "█▁▁"),
        ([0, 0, 5, 0, 0], 3, "▁█▁"),
        ([1, 2], 0, ""),
    ],
)
def test_a_curve_keeps_its_peaks_and_its_gaps(values: list[float | None], columns: int, shown: str) -> None:
    assert spark(values, columns) == shown


@given(st.lists(st.none() | st.integers(0, 10**12), max_size=200), st.integers(1, 60))
def test_a_curve_fills_its_columns(values: list[int | None], columns: int) -> None:
    shown = spark(values, columns)
    assert len(shown) == columns
    if any(values):
        assert "█" in shown, "the greatest value is never lost"


def test_bars_are_shares_in_eighths() -> None:
    assert [bar(value, 16, 2) for value in (None, 0, 1, 8, 9, 16)] == ["", "", "▏", "█", "█▏", "██"]
    assert bar(1, 1_000_000, 10) == "▏", "little is not nothing"
    assert bar(5, 0, 10) == ""


@pytest.mark.parametrize(
    ("number", "shown"),
    [(None, "-"), (0, "0"), (99_999, "99,999"), (100_000, "100k"), (999_499, "999k"), (1_250_000, "1.25M"),
     (12_345_678, "12.3M"), (5e9, "5.00G"), (2e12, "2T")],
)  # fmt: skip
def test_counts_are_short(number: float | None, shown: str) -> None:
    assert short_count(number) == shown


@given(st.integers(0, 10**14))
def test_counts_fit_their_column(number: int) -> None:
    assert len(short_count(number)) <= 6


def test_a_slow_rate_is_not_none() -> None:
    assert [short_rate(rate) for rate in (None, 0, 0.1, 9.9, 12.4)] == ["-", "0", "0.1", "9.9", "12"]


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(None, "-"), (-5, "0s"), (0, "0s"), (1_440, "1.4s"), (61_000, "61s"), (100_000, "2m"), (6_000_000, "2h"),
     (864_000_000, "10d")],
)  # fmt: skip
def test_ages_are_short(ms: float | None, shown: str) -> None:
    assert short_age(ms) == shown
