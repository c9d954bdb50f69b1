"""Counts by key in windows of event time, as SQL.

python -m bench.streaming.sql NAME_SERVER SOURCE SINK FOLDER OPTION...
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.streaming.orders import WINDOW_S
from rmqio.cli.main import main as rmqio

_JOB = """
CREATE TABLE orders (
  key STRING, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('topic' = '{source}', 'format' = 'csv', 'csv.field-delimiter' = '|');
CREATE TABLE totals (key STRING, `start` BIGINT, `count` BIGINT) WITH ('topic' = '{sink}');
INSERT INTO totals
SELECT key, EXTRACT(EPOCH FROM window_start) * 1000, COUNT(*)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '{seconds}' SECOND))
GROUP BY key, window_start, window_end;
"""


def main(name_server: str, source: str, sink: str, folder: str, *flags: str) -> int:
    job = Path(folder) / "job.sql"
    job.write_text(_JOB.format(source=source, sink=sink, seconds=WINDOW_S))
    return rmqio(["sql", str(job), f"--name_server={name_server}", "--start=earliest", "--stop=latest", *flags])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
