"""Runs the cases with the rmqio of a tree: `program.py TREE`, with the arguments of a run as JSON in each line.

It answers each line with one: the seconds, and the work that was done. It imports public names of the tree only, so
that modules can be anywhere in it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

Work = Iterable[str]
"""What says that the same was done, for the digest."""
QUERY: Final = "SELECT k, n * 2 AS n, UPPER(s) AS s FROM m WHERE MOD(n, 10) = 3"
COLUMNS: Final = "(k STRING, n BIGINT, s STRING)"


def body(number: int) -> bytes:
    """Returns the body of a message."""
    return b'{"k":"k%d","n":%d,"s":"%032d"}' % (number % 100, number, number)


def _source(server: str, **more: Any) -> Any:
    from rmqio import ReadFromRocketMQ, StartFrom, StopAt

    return ReadFromRocketMQ("source", name_server=server, start=StartFrom.earliest(), stop=StopAt.latest(), **more)


def _run(build: Callable[[Any], Any], *flags: str) -> None:
    import apache_beam as beam

    from rmqio.runners import options

    pipeline = beam.Pipeline(options=options(flags))
    build(pipeline)
    pipeline.run().wait_until_finish()


def sql(server: str, messages: int) -> Work:
    """A filter and a projection of JSON, from topic to topic."""
    from rmqio import WriteToRocketMQ
    from rmqio.sql import SqlTransform

    def build(pipeline: Any) -> None:
        import apache_beam as beam

        rows = {"m": pipeline | _source(server, batches=True)} | SqlTransform(QUERY, {"m": COLUMNS})
        _ = rows | beam.Map(_message) | WriteToRocketMQ("sink", name_server=server, with_sent=False)

    _run(build)
    return ()


def _message(row: Any) -> Any:
    from rmqio import Message

    return Message(f"{row.k} {row.n} {row.s}".encode())


def read(server: str, messages: int) -> Work:
    """A read, whose records are counted."""
    seen: list[str] = []

    def note(record: Any) -> None:
        seen.append(f"{record.queue_offset} {record.body!r}")

    _KEEP["note"] = note

    def build(pipeline: Any) -> None:
        import apache_beam as beam

        _ = pipeline | _source(server) | beam.Map(_noted)

    _run(build)
    return seen


_KEEP: dict[str, Any] = {}


def _noted(record: Any) -> None:
    _KEEP["note"](record)


def write(server: str, messages: int) -> Work:
    """A write of messages."""
    from rmqio import Message, WriteToRocketMQ

    def build(pipeline: Any) -> None:
        import apache_beam as beam

        made = pipeline | beam.Create(range(messages)) | beam.Map(body) | beam.Map(Message).with_output_types(Message)
        _ = made | WriteToRocketMQ("sink", name_server=server, with_sent=False)

    _run(build)
    return ()


def spark(server: str, messages: int) -> Work:
    """A GroupByKey and a sum on Spark."""

    def build(pipeline: Any) -> None:
        import apache_beam as beam
        from apache_beam.testing.util import assert_that, equal_to

        pairs = pipeline | beam.Create(range(messages)) | beam.Map(lambda n: (n % 1000, n))
        sums = pairs | beam.GroupByKey() | beam.Map(lambda pair: sum(pair[1])) | beam.CombineGlobally(sum)
        assert_that(sums, equal_to([messages * (messages - 1) // 2]))

    _run(build, "--runner=SparkRunner")
    return ()


def stream(server: str, messages: int) -> Work:
    """A stream on Spark that counts in windows, to the end of its topic."""
    from rmqio import Message, ReadFromRocketMQ, StartFrom, WriteToRocketMQ

    def build(pipeline: Any) -> None:
        import apache_beam as beam
        from apache_beam.transforms.window import FixedWindows

        records = pipeline | ReadFromRocketMQ("source", name_server=server, start=StartFrom.earliest())
        pairs = records | beam.Map(lambda record: (json.loads(record.body)["k"], 1))
        counts = pairs | beam.WindowInto(FixedWindows(60)) | beam.CombinePerKey(sum)
        told = counts | beam.Map(lambda pair: Message(f"{pair[0]} {pair[1]}".encode())).with_output_types(Message)
        _ = told | WriteToRocketMQ("sink", name_server=server, with_sent=False)

    with tempfile.TemporaryDirectory() as folder:
        _run(build, "--runner=SparkRunner", "--streaming", "--available_now", "--drain", f"--checkpoint_dir={folder}")
    return ()


CASES: Final[dict[str, Callable[[str, int], Work]]] = {
    "sql": sql, "read": read, "write": write, "spark": spark, "stream": stream,
}  # fmt: skip
ON_SPARK: Final = ("spark", "stream")


def answer(case: str, server: str, messages: int) -> dict[str, Any]:
    """Runs a case. Returns its seconds, on Spark by the clock and else of CPU, and a digest of its work."""
    clock = time.perf_counter if case in ON_SPARK else time.process_time
    begun = clock()
    work = CASES[case](server, messages)
    seconds = clock() - begun
    return {"seconds": seconds, "work": sum(zlib.crc32(each.encode()) for each in work)}


def elsewhere(tree: Path) -> list[str]:
    """Returns the modules of rmqio that are not of the tree."""
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    ours = {name: file for name, file in files.items() if name.partition(".")[0] == "rmqio" and file}
    return sorted(name for name, file in ours.items() if not Path(file).resolve().is_relative_to(tree.resolve()))


def main(tree: Path) -> None:
    """Answers lines until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr
    os.environ["PYSPARK_PYTHON"] = sys.executable
    sys.path[0] = str(tree)
    for line in sys.stdin:
        found = answer(*json.loads(line))
        print(json.dumps(found | {"elsewhere": elsewhere(tree)}), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
