"""Writes bodies that are too big for a broker to files, and reads them back as if they had been in their messages.

    rmqio local --port 9876 --topic images &
    python examples/big_bodies.py --name_server=127.0.0.1:9876

Bodies above 64 KiB go to the folder `--folder`, and their messages carry a reference (`rmqio peek images`). On several
machines, it is a folder that all workers see, such as gs://bucket/claims. The program prints the sizes that it reads,
and how many files there are:

    image-0: 10 bytes
    image-1: 5,000,000 bytes
    image-2: 10,000,000 bytes
    2 files
"""

import argparse
from pathlib import Path

from rmqio import ClaimCheck, Message, ReadFromRocketMQ, Record, StartFrom, StopAt, WriteToRocketMQ
from rmqio.runners import options
import apache_beam as beam


def image(number: int) -> Message:
    return Message(b"%d" % number * (number * 5_000_000 or 10), keys=[f"image-{number}"])


def show(record: Record) -> None:
    print(f"{record.keys[0]}: {len(record.body):,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name_server", help="host:port; default: the environment variable NAMESRV_ADDR")
    parser.add_argument("--sink_topic", default="images")
    parser.add_argument("--folder", type=Path, default=Path("claims"))
    arguments, runner_options = parser.parse_known_args()

    claims = ClaimCheck(str(arguments.folder.absolute()), above_bytes=64 * 1024)
    at = {"name_server": arguments.name_server, "claim_check": claims}
    write = WriteToRocketMQ(arguments.sink_topic, id_fn=lambda message: message.keys[0], **at)
    with beam.Pipeline(options=options(runner_options)) as pipeline:
        pipeline | beam.Create(range(3)) | beam.Map(image) | write
    with beam.Pipeline(options=options(runner_options)) as pipeline:
        read = ReadFromRocketMQ(arguments.sink_topic, start=StartFrom.earliest(), stop=StopAt.latest(), **at)
        pipeline | read | beam.Map(show)
    print(sum(path.is_file() for path in arguments.folder.rglob("*")), "files")
