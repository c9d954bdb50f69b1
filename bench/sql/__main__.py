"""SQL beside the same work by hand, by DuckDB, and by a plain copy of batches.

python -m bench.sql [--repeats 30] [--batch 512]                     one process, microseconds of CPU a message
python -m bench.sql --runner=DirectRunner [--messages 500000]        topic to topic, messages per second
python -m bench.sql --runner=DirectRunner --eight                    eight statements as one job, and as eight jobs

In one process each side gets the same bodies of JSON, in batches, and must give the same rows: a filter of the IoT
case, of which a tenth passes, and counts and sums by key. By hand is a loop with json.loads and json.dumps. DuckDB
reads and writes JSON itself; it is left out if it is not installed.

From topic to topic, the same filter runs as SQL, as a copy of all batches (`MapRecords` of the identity), and in Beam
element by element with json.loads. The time of the same pipeline on an empty topic is subtracted.

Eight queries over one topic are filters, projections and groups. As one job they share the read and the decoding.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from bench.common.report import BUSY_WARNING, aligned, machine_text
from bench.sql.fragments import eight, fragments
from bench.sql.topics import eight_jobs, topics


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sql", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runner", choices=["DirectRunner", "SparkRunner"], help="run from topic to topic on it")
    parser.add_argument("--eight", action="store_true", help="with --runner: eight statements as one job, and as eight")
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, help="default: 30 in one process, 5 from topic to topic")
    given = parser.parse_args(argv)
    load_average = os.getloadavg()[0]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("rmqio").setLevel(logging.ERROR)
    print(f"Machine: {machine_text()}.")
    if given.runner is None:
        head = ["case", "side", "least us", "median us", "ratio to sql"]
        lines = fragments(given.batch, given.repeats or 30) + eight(given.batch, given.repeats or 30)
        print(aligned([head, *lines], left={0, 1}))
    else:
        head = ["runner", "side", "messages/s", "sql's ratio to it"]
        run = eight_jobs if given.eight else topics
        print(aligned([head, *run(given.runner, given.messages, given.repeats or 5)], left={0, 1}))
    if load_average > 0.5:
        print(BUSY_WARNING.format(load_average).strip("*"))


if __name__ == "__main__":
    main()
