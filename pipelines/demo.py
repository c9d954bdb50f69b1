"""`make demo`: a real RocketMQ, 3,000 addresses, `province.py`, and a check that nothing is lost or duplicated.

Everything runs on this machine and is stopped at the end, also on Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
import unicodedata
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from tqdm import tqdm

from rmqio.client.factory import RemotingClientFactory
from rmqio.command_line.arguments import whole_number
from rmqio.command_line.parser import Parser
from rmqio.errors import RmqioError
from rmqio.interfaces import PendingSend, Producer, QueueClient
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions
from rmqio.pipelines.addresses import SAMPLE_SIZE, addresses, sample_lines
from rmqio.pipelines.check import body_of, read_topic
from rmqio.pipelines.common.arguments import make_parser, parse
from rmqio.runners.options import known_runner, wrong_argument

SOURCE: Final = "addresses"
SINK: Final = "provinces"
HOPS: Final = "audit"
_QUEUES: Final = 4
_BATCH: Final = 500
_IN_FLIGHT: Final = 8
_POLL_S: Final = 0.5
_STOP_S: Final = 10


def demo(runner: str, count: int, pipeline_arguments: Sequence[str]) -> int:
    """Run the whole demo and return the exit status. Raises `RmqioError`."""
    say("starting RocketMQ (the first time this downloads 98 MB)")
    with LocalRocketMQ() as rocketmq, contextlib.ExitStack() as stack:
        say(f"name server at {rocketmq.name_server}")
        for topic in (SOURCE, SINK, HOPS):
            rocketmq.create_topic(topic, queues=_QUEUES)
        factory = RemotingClientFactory(ClientOptions(name_servers=rocketmq.name_server))
        client = factory.queue_client()
        stack.callback(client.close)
        with contextlib.closing(factory.producer("demo")) as producer:
            load(producer, lines(count), count)
        command = arguments_of_province(rocketmq.name_server, runner, pipeline_arguments)
        status = run_pipeline(["province", *command], client, count)
        if status:
            say(f"province.py failed with exit status {status}")
            return 1
        show(Counter(body_of(record).get("province", "?") for record in read_topic(client, SINK)))
        return audit(rocketmq.name_server)


def arguments_of_province(name_server: str, runner: str, more: Sequence[str]) -> list[str]:
    """Return the command line of `province.py`."""
    topics = [f"--name_server={name_server}", f"--source_topic={SOURCE}", f"--sink_topic={SINK}"]
    return [*topics, f"--audit_topic={HOPS}", f"--runner={runner}", "--start=earliest", "--stop=latest", *more]


def audit(name_server: str) -> int:
    """Run `rmqio audit`: `province.py` gives each message the unique id of its source."""
    topics = [f"--name_server={name_server}", f"--from_topic={SOURCE}", f"--to_topic={SINK}"]
    topics.append(f"--audit_topic={HOPS}")
    # Messages are there before the runner starts, which takes more than the usual limit of a minute on a slow machine.
    return subprocess.run(
        [sys.executable, "-m", "rmqio", "audit", "--by=id", "--late=10m", *topics], check=False
    ).returncode


def say(text: str) -> None:
    """Report progress on stderr; stdout is for the result."""
    print(f"demo: {text}", file=sys.stderr, flush=True)


def lines(count: int) -> Iterator[bytes]:
    """Return the lines of the sample file, or as many addresses as asked for from the same generator."""
    if count <= SAMPLE_SIZE:
        return iter(sample_lines()[:count])
    return (json.dumps(address, ensure_ascii=False).encode() for address in addresses(count))


def load(producer: Producer, bodies: Iterator[bytes], count: int) -> None:
    """Send the addresses in batches, to all queues in turn."""
    queues = itertools.cycle(producer.queues(SOURCE))
    pending: deque[PendingSend] = deque()
    with progress(f"load {SOURCE}", count) as bar:
        while batch := [
            Message(body, topic=SOURCE, keys=(str(json.loads(body)["id"]),))
            for body in itertools.islice(bodies, _BATCH)
        ]:
            pending.append(producer.submit(batch, next(queues)))
            while len(pending) >= _IN_FLIGHT:
                bar.update(len(pending.popleft().result()))
        while pending:
            bar.update(len(pending.popleft().result()))


def run_pipeline(command: Sequence[str], client: QueueClient, count: int) -> int:
    """Run a pipeline of this package as a user would, show how the sink fills, and return the exit status."""
    module, *arguments = command
    say("running python -m rmqio.pipelines." + " ".join(command))
    process = subprocess.Popen([sys.executable, "-m", f"rmqio.pipelines.{module}", *arguments])
    try:
        with progress("run the pipeline", count) as bar:
            while process.poll() is None:
                time.sleep(_POLL_S)
                written = sum(client.max_offset(queue) for queue in client.queues(SINK))
                bar.update(written - bar.n)
        return process.returncode
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def progress(what: str, count: int) -> tqdm[NoReturn]:
    """Return a progress bar, which shows on a terminal only: a log is not the place for one."""
    if not sys.stderr.isatty():
        say(f"{what}: {count} messages")
    return tqdm(total=count, desc=f"demo: {what}", unit="msg", disable=None)


def show(counts: Counter[str], columns: int = 3) -> None:
    """Print the provinces with their numbers of addresses, the largest first."""
    cells = [f"{number:7}  {_padded(province, 18)}" for province, number in counts.most_common()]
    height = -(-len(cells) // columns)
    for row in range(height):
        print("".join(cells[row::height]).rstrip())


def _padded(text: str, width: int) -> str:
    """Pad text for a terminal, where a Chinese character takes two columns."""
    taken = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
    return text + " " * max(0, width - taken)


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)  # unwinds, so that everything is stopped


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="demo.py",
        description="Start RocketMQ on this machine, load addresses, run province.py on them, and check the result.",
        epilog="Other options go to province.py. At the end, `rmqio audit` reports messages that are lost or doubled."
        "\n\nexit status: 0 nothing lost or duplicated, 1 otherwise or on failure, 2 wrong usage, 130 interrupted",
    )
    parser.add_argument(
        "--runner", type=known_runner, default="SparkRunner", metavar="NAME", help="default: %(default)s"
    )
    parser.add_argument(
        "--count",
        type=whole_number("number", 1),
        default=SAMPLE_SIZE,
        metavar="N",
        help="number of addresses; default: %(default)s",
    )
    argv = sys.argv[1:] if argv is None else argv
    if wrong := wrong_argument(argv, parser.option_names | make_parser().option_names):
        parser.error(wrong)
    arguments, rest = parser.parse_known_args(argv)
    parse(arguments_of_province("any:1", arguments.runner, rest))  # what is wrong, before anything starts
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return demo(arguments.runner, arguments.count, rest)
    except RmqioError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; everything is stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())
