"""`python -m bench.peers`: what the jobs must bring out, and the ledger that compares it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.common.tally import BenchError
from bench.peers.__main__ import main, table
from bench.peers.lab import JOBS, SIDES, Row
from bench.peers.ledger import Ledger, compared
from bench.peers.race import Job, Outcome, Sink, run_bounded
from bench.peers.works import PATTERNS, WORKS, Work
from rmqio.model import Record
from tests.helpers.transforms.records import record_of


def messages(rows: list[dict[str, Any]]) -> list[Record]:
    return [record_of(json.dumps(row).encode()) for row in rows]


def test_provinces_are_those_of_the_addresses() -> None:
    work = WORKS["province"](70)
    assert len(work.bodies) == len(work.wanted) == 70
    for body in work.bodies:
        row = json.loads(body)
        assert row["address"].startswith(work.wanted[row["id"]] + " ")


def test_one_of_a_hundred_lines_matches_and_each_pattern_does() -> None:
    work = WORKS["patterns"](10_000)
    assert len(work.wanted) == 100
    for pattern in PATTERNS:
        assert any(re.search(pattern, text) for text in work.wanted.values())
    assert len(PATTERNS) == 41


def test_sums_of_windows_are_those_of_the_orders() -> None:
    work = WORKS["sums"](5_000)
    orders = [json.loads(body) for body in work.bodies]
    assert sum(count for count, _ in work.wanted.values()) == 5_000
    assert sum(total for _, total in work.wanted.values()) == sum(order["amount"] for order in orders)
    late = [order for order in orders if order["key"] == "end"]
    assert min(order["time_ms"] for order in late) - 3_000_000 > max(o["time_ms"] for o in orders if o["key"] != "end")


@pytest.mark.parametrize("sums", [{"start_ms": 1_700_000_000_000}, {"start_time": "local"}])
def test_both_forms_of_a_total_are_read(sums: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import datetime as dt

    if "start_time" in sums:
        sums = {"start_time": f"{dt.datetime.fromtimestamp(1_700_000_000):%Y-%m-%d %H:%M:%S}"}
    read = WORKS["sums"](10).read
    assert read({"key": "k1", "count": 3, "sum": 7.0, **sums}) == ("k1 1700000000000", [3, 7])
    assert read({"key": "end"}) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_the_ledger_counts_what_is_lost_doubled_and_wrong(sent: list[tuple[int, bool]]) -> None:
    work = Work("t", [], {str(n): n for n in range(8)}, lambda found: (str(found["id"]), found["value"]))
    rows = [{"id": n, "value": n if is_right else -1} for n, is_right in sent]
    right = [n for n, is_right in sent if is_right and n < 8]
    wanted = Ledger(len(set(right)), 8 - len(set(right)), len(right) - len(set(right)), len(sent) - len(right))
    assert compared(work, messages(rows)) == wanted


def test_the_table_says_what_came_out() -> None:
    rows = [
        Row("killed", "rmqio, Flink", 1_000, Outcome(1.25, 2.0, 300), Ledger(1_000, 0, 12, 0)),
        Row("sums", "rocketmq-streams", 1_000, Outcome(1.25, 4.0, 300), Ledger(990, 10, 0, 3)),
        Row("province", "rmqio, Direct", 1_000, Outcome(1.25, 4.0, 300), Ledger(1_000, 0, 0, 0)),
    ]
    assert [*table(rows)][2:] == [
        "| killed, 1,000 | rmqio, Flink | 1.2 | 2.0 | 500 | 300 | 12 doubled |",
        "| sums, 1,000 | rocketmq-streams | 1.2 | 4.0 | 250 | 300 | 10 lost, 3 wrong |",
        "| province, 1,000 | rmqio, Direct | 1.2 | 4.0 | 250 | 300 | each once |",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["provinces"], "unknown job provinces; known are province, killed"),
        (["--sides=x"], "unknown side x; known are"),
    ],
)
def test_a_wrong_name_is_an_error_before_anything_starts(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert text in capsys.readouterr().err


def test_each_job_has_sides_that_exist() -> None:
    assert all(set(sides) <= set(SIDES) and kind in WORKS for kind, sides in JOBS.values())


class Lines(Sink):
    """A file instead of a topic."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def count(self) -> int:
        found = len(self.path.read_bytes()) if self.path.exists() else 0
        if found:
            self.path.with_name("seen").touch()
        return found


WRITES_AND_GOES_ON = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "new").write_text("xxx")
(folder / "new").rename(folder / "sink")
while not (folder / "seen").exists():
    time.sleep(0.01)
"""


@pytest.mark.parametrize("last", ["", "sys.exit('no broker')"])
def test_a_bounded_job_is_done_when_it_ends_and_its_last_message_is_its_end(last: str, tmp_path: Path) -> None:
    sink = Lines(tmp_path / "sink")
    code = WRITES_AND_GOES_ON + last

    def race() -> Outcome:
        return run_bounded(
            lambda: Job([sys.executable, "-c", code, str(tmp_path)], tmp_path / "log"), sink, 4, timeout_s=60
        )

    if last:
        with pytest.raises(BenchError, match=r"(?s)the job has ended with 1:.*no broker"):
            race()
    else:
        took = race()  # a message is missing, as the ledger will say
        assert took.whole_s == took.first_s > 0


def test_each_side_of_a_job_is_known_and_streams_are_killed_only() -> None:
    assert not any("bounded" in side for side in JOBS["killed"][1])
    assert {"rmqio, Direct, bounded", "rmqio, Spark, bounded"} <= {*JOBS["sums"][1]}
