"""Sums and counts of orders in windows, as `windowed_orders.py` makes them, in SQL.

python -m bench.streaming.totals NAME_SERVER SOURCE SINK FOLDER OPTION...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from bench.common.tally import UnequalWork
from bench.streaming.orders import WINDOW_S, Load, records_of
from rmqio.cli.main import main as rmqio
from rmqio.local import LocalRocketMQ

_JOB: Final = """
CREATE TABLE orders (
  key STRING, amount DOUBLE, time_ms BIGINT, ts AS TO_TIMESTAMP_LTZ(time_ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('topic' = '{source}');
CREATE TABLE totals (key STRING, start_ms BIGINT, end_ms BIGINT, `count` BIGINT, `sum` DOUBLE)
WITH ('topic' = '{sink}', 'keyColumns' = 'key');
INSERT INTO totals
SELECT key, EXTRACT(EPOCH FROM window_start) * 1000, EXTRACT(EPOCH FROM window_end) * 1000, COUNT(*), SUM(amount)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '{seconds}' SECOND))
GROUP BY key, window_start, window_end;
"""
_AMOUNT: Final = 12.5


def order(key: str, time_ms: int) -> bytes:
    """Returns the body of an order."""
    return b'{"key": "%s", "amount": %.1f, "time_ms": %d}' % (key.encode(), _AMOUNT, time_ms)


def check(broker: LocalRocketMQ, sink: str, load: Load) -> int:
    """Counts the totals. Raises `UnequalWork` unless every order is in exactly one of them."""
    found: dict[tuple[str, int], tuple[int, float]] = {}
    for record in records_of(broker.name_server, sink):
        total = json.loads(record.body)
        if total["key"] != "end":
            found[total["key"], int(total["start_ms"])] = total["count"], total["sum"]
    counted = sum(count for count, _ in found.values())
    if counted != load.messages or sum(total for _, total in found.values()) != counted * _AMOUNT:
        raise UnequalWork(f"{sink}: {counted:,} orders are in the totals, {load.messages:,} were sent")
    return len(found)


def main(name_server: str, source: str, sink: str, folder: str, *flags: str) -> int:
    job = Path(folder) / "job.sql"
    job.write_text(_JOB.format(source=source, sink=sink, seconds=WINDOW_S))
    return rmqio(["sql", str(job), f"--name_server={name_server}", "--start=earliest", "--stop=latest", *flags])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
