"""Draws the pictures of the documentation: `python -m docs.tools.draw` writes docs/images/*.svg."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.tools.svg import Picture

FOLDER: Final = Path(__file__).parents[1] / "images"


def overview() -> Picture:
    """Broker, transforms, runners."""
    picture = Picture(
        640,
        378,
        "rmqio in one picture",
        "ReadFromRocketMQ pulls from RocketMQ's brokers, your transforms follow, WriteToRocketMQ sends batches back to "
        "the brokers. SparkRunner, FlinkRunner or DirectRunner runs the pipeline.",
    )
    picture.box("broker", 20, 20, 600, 62, "Apache RocketMQ", "name servers, brokers, topics and their queues")
    picture.arrow((125, 82), (125, 162))
    picture.small(137, 112, "pulls, in order per queue", "start")
    picture.arrow((515, 162), (515, 82))
    picture.small(503, 112, "batches per queue", "end")
    picture.frame(20, 130, 600, 118, "")
    picture.small(320, 149, "one Apache Beam pipeline, in Python")
    picture.box("ours", 38, 162, 182, 68, "ReadFromRocketMQ", "records, event time")
    picture.arrow((220, 196), (246, 196))
    picture.box("yours", 246, 162, 148, 68, "your transforms", "windows, state, joins")
    picture.arrow((394, 196), (420, 196))
    picture.box("ours", 420, 162, 182, 68, "WriteToRocketMQ", "keys, tags, order")
    picture.small(320, 276, "runs on one of these, unchanged")
    for at, (name, line) in enumerate(
        [
            ("SparkRunner", "PySpark, batch and streams"),
            ("FlinkRunner", "starts its own, or a cluster"),
            ("DirectRunner", "in this process"),
        ]
    ):
        picture.box("runner", 20 + 205 * at, 290, 190, 68, name, line)
    return picture


LAYERS: Final = (
    (("plain", "cli", "commands"),),
    (("ours", "rules", "conditions"), ("ours", "yaml", "Beam YAML"), ("ours", "pyspark", "without Beam")),
    (
        ("ours", "sql", "queries"),
        ("ours", "audit", "lost messages"),
        ("ours", "skew", "hot keys"),
        ("ours", "watch", "a job"),
    ),
    (("ours", "enrich", "dimension tables"), ("ours", "connect", "databases, search, Kafka, files")),
    (("yours", "transforms", "Beam: reads and writes of topics"),),
    (("ours", "dead_letters", "failed messages"), ("ours", "claims", "big bodies"), ("ours", "jobs", "folders of SQL")),
    (("ours", "sending", "batches"), ("ours", "command_line", "for all commands"), ("ours", "librocketmq", "in C++")),
    (("broker", "client", "sockets, routes, pulls, sends, offsets"),),
    (("ours", "wire", "bytes, no I/O"), ("ours", "serde", "bodies to values"), ("ours", "prometheus", "metrics")),
)
"""Rows of packages, each with the kind of its box, its name and a remark. Imports lead downwards."""
BESIDE: Final = ("runners", "local", "testing")


def packages() -> Picture:
    """The packages of rmqio in layers."""
    names = "; ".join(", ".join(name for _, name, _ in row) for row in LAYERS)
    picture = Picture(
        640,
        684,
        "The packages of rmqio in layers",
        f"From top to bottom: {names}; base. Beside them: {', '.join(BESIDE)}.",
    )
    picture.small(245, 38, "a package imports only packages below it, and what is beside")
    for at, row in enumerate(LAYERS):
        width = (450 - 10 * (len(row) - 1)) / len(row)
        for place, (kind, name, line) in enumerate(row):
            picture.box(kind, 20 + place * (width + 10), 52 + 62 * at, width, 52, name, line)
    picture.box("plain", 20, 610, 600, 52, "base", "values, options, errors, interfaces, start, repeats, telemetry")
    runners, local, testing = BESIDE
    of_any = ("direct, spark, flink:", "any Beam pipeline,", "also without", "RocketMQ")
    picture.box("runner", 490, 114, 130, 300, runners, *of_any)
    picture.box("plain", 490, 486, 130, 52, local, "a real broker")
    picture.box("plain", 490, 548, 130, 52, testing, "fakes")
    return picture


PICTURES: Final[Mapping[str, Callable[[], Picture]]] = {
    "overview.svg": overview,
    "packages.svg": packages,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(str(draw()))


if __name__ == "__main__":
    main()
