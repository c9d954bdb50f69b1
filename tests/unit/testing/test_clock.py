"""The manual clock."""

from __future__ import annotations

from rmqio.testing import ManualClock


def test_it_moves_only_when_it_is_moved() -> None:
    clock = ManualClock(start=1_000.0)
    assert (clock.time(), clock.monotonic()) == (1_000.0, 0.0)
    clock.advance(1.5)
    assert (clock.time(), clock.time_ms(), clock.monotonic()) == (1_001.5, 1_001_500, 1.5)


def test_sleeping_moves_it_at_once_and_is_noted() -> None:
    clock = ManualClock()
    clock.sleep(10)
    clock.sleep(-1)
    assert clock.monotonic() == 10
    assert clock.sleeps == [10, -1]


def test_what_was_planned_happens_at_its_moment_in_order() -> None:
    clock = ManualClock()
    seen = []
    clock.call_later(2, lambda: seen.append(("b", clock.monotonic())))
    clock.call_later(1, lambda: seen.append(("a", clock.monotonic())))
    clock.call_later(1, lambda: clock.call_later(0.5, lambda: seen.append(("nested", clock.monotonic()))))
    clock.call_later(9, lambda: seen.append(("never", clock.monotonic())))
    clock.advance(0.9)
    assert seen == []
    clock.sleep(3)
    assert seen == [("a", 1.0), ("nested", 1.5), ("b", 2.0)]
    assert clock.monotonic() == 3.9
