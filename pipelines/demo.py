"""`make demo`: starts a real RocketMQ, loads addresses, runs province.py on them, and checks the result.

Other options go to province.py. At the end, `rmqio audit` reports messages that are lost or doubled. Everything runs on
this machine and is stopped at the end, also on Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from rmqio import ClientOptions, Message, RmqioError
from rmqio.client import RemotingClientFactory
from rmqio.command_line.arguments import whole_number
from rmqio.command_line.parser import Parser
from rmqio.hints import character_width
from rmqio.interfaces import QueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import MessageFilter
from tqdm import tqdm

FOLDER: Final = Path(__file__).resolve().parent
SOURCE, SINK, HOPS = TOPICS = ("addresses", "provinces", "audit")
SAMPLE: Final = FOLDER / "addresses.jsonl"
BATCH: Final = 500
REDRAW_S: Final = 0.5
SILENT_MS: Final = 30_000
EPILOG: Final = "exit status: 0 nothing lost or doubled, 1 otherwise or on failure, 2 wrong usage, 130 interrupted"


def demo(runner: str, count: int, more: Sequence[str]) -> int:
    """Runs everything, and returns the exit status. Raises `RmqioError`."""
    if status := subprocess.run(province("any:1", runner, [*more, "--check"]), check=False).returncode:
        return status
    say("starting RocketMQ (the first time this downloads 98 MB)")
    with LocalRocketMQ() as rocketmq:
        say(f"name server at {rocketmq.name_server}")
        for topic in TOPICS:
            rocketmq.create_topic(topic, queues=4)
        load(rocketmq.name_server, count)
        client = RemotingClientFactory(ClientOptions(name_servers=rocketmq.name_server)).queue_client()
        with contextlib.closing(client):
            if status := run(province(rocketmq.name_server, runner, more), client, count):
                say(f"province.py failed with exit status {status}")
                return 1
            show(Counter(body["province"] for body in bodies(client, SINK)))
        topics = [f"--from_topic={SOURCE}", f"--to_topic={SINK}", f"--audit_topic={HOPS}"]
        # Messages are there before the runner starts, which takes more than the usual limit of a minute if it is slow
        audit = [sys.executable, "-m", "rmqio", "audit", "--by=id", "--late=10m", *topics]
        return subprocess.run([*audit, f"--name_server={rocketmq.name_server}"], check=False).returncode


def province(name_server: str, runner: str, more: Sequence[str]) -> list[str]:
    """Returns the command line of province.py."""
    topics = [f"--name_server={name_server}", f"--source_topic={SOURCE}", f"--sink_topic={SINK}"]
    options = [*topics, f"--audit_topic={HOPS}", f"--runner={runner}", "--start=earliest", "--stop=latest"]
    return [sys.executable, str(FOLDER / "province.py"), *options, *more]


def load(name_server: str, count: int) -> None:
    """Sends the sample, again and again with other ids, in batches, to all queues in turn."""
    sample = itertools.cycle([json.loads(line)["address"] for line in SAMPLE.read_text("utf-8").splitlines()])
    messages = (
        Message(json.dumps({"id": number, "address": address}).encode(), topic=SOURCE, keys=(str(number),))
        for number, address in zip(range(1, count + 1), sample, strict=False)
    )
    producer = RemotingClientFactory(ClientOptions(name_servers=name_server)).producer("demo")
    with contextlib.closing(producer), progress(f"load {SOURCE}", count) as bar:
        for queue in itertools.cycle(producer.queues(SOURCE)):
            if not (batch := list(itertools.islice(messages, BATCH))):
                break
            bar.update(len(producer.send_batch(batch, queue)))


def run(command: Sequence[str], client: QueueClient, count: int) -> int:
    """Runs a program, shows how the sink fills, and returns the exit status."""
    say("running " + " ".join(command[1:]))
    process = subprocess.Popen(command)
    try:
        with progress("run the pipeline", count) as bar:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(REDRAW_S)
                bar.update(sum(map(client.max_offset, client.queues(SINK))) - bar.n)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def bodies(client: QueueClient, topic: str) -> Iterator[dict[str, Any]]:
    """Yields the objects of JSON that a topic holds."""
    for queue in client.queues(topic):
        end = client.max_offset(queue)
        with contextlib.closing(client.open_reader(queue, 0, message_filter=MessageFilter())) as reader:
            while reader.position < end:
                if not client.wait([reader], SILENT_MS):
                    raise RmqioError(f"{queue}: no answer at offset {reader.position} of {end}")
                if (fetched := reader.poll()) is not None:
                    yield from (json.loads(record.body) for record in fetched.records)


def say(text: str) -> None:
    """Reports progress on stderr; stdout is for the result."""
    print(f"demo: {text}", file=sys.stderr, flush=True)


def progress(what: str, count: int) -> tqdm[NoReturn]:
    """Returns a progress bar, which shows on a terminal only: a log is not the place for one."""
    if not sys.stderr.isatty():
        say(f"{what}: {count} messages")
    return tqdm(total=count, desc=f"demo: {what}", unit="msg", disable=None)


def show(counts: Counter[str], columns: int = 3) -> None:
    """Prints the provinces with their numbers of addresses, the largest first. A Chinese character has two columns."""
    cells = [f"{count:7}  {name}{' ' * (18 - sum(map(character_width, name)))}" for name, count in counts.most_common()]
    height = -(-len(cells) // columns)
    for row in range(height):
        print("".join(cells[row::height]).rstrip())


def terminated(*_: object) -> NoReturn:
    """Unwinds, so that everything is stopped."""
    raise SystemExit(128 + signal.SIGTERM)


def main() -> int:
    parser = Parser(prog="demo.py", description=__doc__, epilog=EPILOG)
    parser.add_argument("--runner", default="SparkRunner", metavar="NAME", help="default: %(default)s")
    number = whole_number("number", 1)
    parser.add_argument("--count", type=number, default=3_000, metavar="N", help="of addresses; default: %(default)s")
    options, more = parser.parse_known_args()
    signal.signal(signal.SIGTERM, terminated)
    try:
        return demo(options.runner, options.count, more)
    except RmqioError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; everything is stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())
