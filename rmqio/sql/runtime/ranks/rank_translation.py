"""Ranks in a pipeline: each form has its own way to run, and an input that ends has one for most of them."""

from __future__ import annotations

from typing import Any, Final

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, GlobalWindows
from apache_beam.utils.timestamp import Duration

from rmqio.sql.compile.description import Fragment, ToRanks
from rmqio.sql.planning.plan import Rank
from rmqio.sql.planning.ranks import (
    Form,
    form_of,
    is_by_arrival,
    stated_order,
    window_and_column,
    window_end,
)
from rmqio.sql.planning.watermarks import delay_us
from rmqio.sql.runtime.ranks.first_fn import ExpiringFirstFn, ExpiringSeenFn, FirstFn, SeenFn
from rmqio.sql.runtime.ranks.rank_fn import FirstRowsFn, RankedFn, RankSpec
from rmqio.sql.runtime.ranks.ranking import Ranking
from rmqio.sql.runtime.ranks.top_fn import ExpiringTopFn, ExpiringTopOfGroupsFn, TopFn, TopOfGroupsFn
from rmqio.sql.runtime.rows.failed_rows import Computing

_LEAST_WINDOW: Final = Duration(micros=1000)
"""Rows of a window come at its last time, so that any window that ends there fires with it."""


def target_of(rank: Rank) -> ToRanks:
    """Returns the form in which rows go into a rank whose own rows do not change."""
    end = window_end(rank)
    found = None if end is None else window_and_column(rank.input, end)
    zone = None if found is None else found[0].local_zone
    time = stated_order(rank)[0].column if form_of(rank) is Form.FIRST else end
    return ToRanks(rank.keys, end, Ranking.of(rank, by_arrival=is_by_arrival(rank)), delay_us(rank.input), zone, time)


def ranked(
    rank: Rank,
    rows: Any,
    fragment: Fragment,
    side: int,
    computing: Computing,
    label: str,
    *,
    ends: bool,
) -> Any:
    """Returns the first rows of partitions.

    Args:
      rows: pairs of key and payload, see `target_of`.
      fragment: what happens to the rows.
      side: if they go into a join, which input of it they are.
      computing: adds the DoFns.
      label: of the transforms.
      ends: whether the input ends.
    """
    spec = RankSpec(rank, Ranking.of(rank, by_arrival=is_by_arrival(rank)), fragment, side, delay_us(rank.input))
    form = form_of(rank)
    expires = rank.ttl_ms > 0 and not ends
    if form is Form.FIRST:
        if (
            ends
        ):  # Beam's Direct runner loses timers of one name of two DoFns in one stage: each gets a stage of its own
            rows = rows | f"{label}: apart" >> beam.Reshuffle()
        return computing.add(rows, label, (ExpiringFirstFn if expires else FirstFn)(spec))
    if form is Form.SEEN and not ends:
        return computing.add(rows, label, (ExpiringSeenFn if expires else SeenFn)(spec))
    if form is Form.UPDATES and not ends:
        return computing.add(rows, label, (ExpiringTopFn if expires else TopFn)(spec))
    if form is Form.WINDOW:
        rows = rows | f"{label}: windows" >> beam.WindowInto(FixedWindows(_LEAST_WINDOW))
    merged = rows | label >> beam.CombinePerKey(FirstRowsFn(spec.ranking))
    found = computing.add(merged, f"{label}: rows", RankedFn(spec))
    return found | f"{label}: all windows" >> beam.WindowInto(GlobalWindows()) if form is Form.WINDOW else found


def of_groups(rank: Rank, rows: Any, fragment: Fragment, computing: Computing, label: str) -> Any:
    """Returns the first rows of partitions of groups that change. `rows`: see `GroupsToRanksFn`."""
    spec = RankSpec(rank, Ranking.of(rank, by_arrival=is_by_arrival(rank)), fragment)
    return computing.add(rows, label, (ExpiringTopOfGroupsFn if rank.ttl_ms else TopOfGroupsFn)(spec))
