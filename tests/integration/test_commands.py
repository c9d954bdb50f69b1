"""The command lines of README, docs and help texts run as they stand there, page by page, each in a folder.

But for two things, so that they meet no other program and leave nothing behind: ports are free ones, and folders
outside the clone are below that folder. tests/helpers/commands.toml has what is not started, and why.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqio import Message, ReadFromRocketMQ, StartFrom, StopAt, WriteToRocketMQ
from rmqio.audit import Audit
from rmqio.client import RemotingProducer, RemotingQueueClient
from rmqio.client.admin import Admin
from rmqio.options import NAME_SERVER_VARIABLE, ClientOptions
from rmqio.runners import options
from rmqio.serde import JsonDeserializer
from tests.helpers.commands import LINES, ROOT, SPECIAL, Line
from tests.helpers.doc_blocks import BLOCKS
from tests.helpers.servers.ports import reserved_port
from tests.helpers.terminal import CTRL_C, ENTER, Terminal, on_terminal
from tests.helpers.waiting import at_most

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

_STARTED: Final = [line for line in LINES if not line.of("excepted")]
PAGES: Final = {page: [*lines] for page, lines in itertools.groupby(_STARTED, lambda line: line.page)}
PAGES["docs/cli.md"] = PAGES.pop("docs/cli.md")  # the last one: it sends orders that are no JSON
BROKER: Final = PAGES["docs/cli.md"][0]
"""The line that starts the broker of all pages, with the topics orders and payments."""
_IN_THE_GATE: Final = ("docs/operate/find.md", "docs/operate/watch.md", "rmqio produce --help")
"""The part `examples` has the others: tests/gate/parts.py."""
_QUEUES: Final = 8
_TOPICS: Final = (
    *("alarms", "alerts", "bad-events", "bills", "clicks", "copies", "customers", "events", "hops", "large-orders"),
    *("logs", "orders-audit", "orders-copy", "orders-dead", "payments", "provinces", "readings", "rules", "seen"),
    *("sensors", "totals"),
)
"""The other topics of the pages. Each has one queue."""
_BUSY: Final = 3010
"""Messages in two queues of the topic orders: as many as pages speak of."""

EVENT: Final = Message(b'{"user": "u1", "CommandLine": "/bin/sh", "process.command_line": "/bin/sh"}', topic="events")
"""It meets the reader's rules."""


@pytest.fixture(scope="module")
def ports() -> dict[str, str]:
    """The ports of the pages, and those that are taken instead."""
    return {port: str(reserved_port()) for port in ("9876", "9464", "50000")}


@pytest.fixture(scope="module")
def at(ports: Mapping[str, str]) -> Iterator[str]:
    """The pages' broker, with orders of which a pipeline has copied all but some. Programs find it."""
    name_server = f"127.0.0.1:{ports['9876']}"
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv(NAME_SERVER_VARIABLE, name_server)
        patch.delenv("RMQIO_LOG", raising=False)
        begin = BROKER.text.removesuffix(" &").replace("9876", ports["9876"])
        stack.enter_context(going_on(begin, BROKER.of("endless"), name_server))
        make_topics(name_server)
        copy_orders(name_server)
        yield name_server


def make_topics(at: str) -> None:
    """Makes the topics of the pages, or what a page has deleted of them, or changed."""
    with Admin(ClientOptions(at)) as admin:
        for topic in _TOPICS:
            admin.create_topic(topic, queues=1)
        admin.create_topic("orders", queues=_QUEUES)
    with (
        closing(RemotingQueueClient(ClientOptions(at))) as client,
        closing(RemotingProducer(ClientOptions(at), "orders")) as producer,
    ):
        for queue in client.queues("orders"):
            count = _BUSY if queue.queue_id in (2, 3) else 30
            if client.max_offset(queue) < count:
                first = 0x56780000 + 4096 * queue.queue_id  # the first id of all is that of the pages
                ids = [f"7F000001A1B218B4AAC21234{first + number:08X}" for number in range(count)]
                producer.send_batch([order(number) for number in range(count)], queue, message_ids=ids)
            client.commit_offset("billing", queue, 17)


def order(number: int) -> Message:
    names = {"order_id": f"o-{number}", "customer": f"c{number}"}
    fields = {"id": number, **names, "key": "k", "amount": number % 200, "time_ms": 1_795_422_128_553 + number}
    return Message(json.dumps(fields).encode(), topic="orders", tags="paid", keys=[f"order-{number}"])


def copy_orders(at: str) -> None:
    """Copies the orders, but for some that are lost, and makes dead letters."""
    with closing(RemotingProducer(ClientOptions(at), "orders")) as producer:
        producer.send_batch([Message(b"oops", topic="bad-events", keys=["order-bad"])] * 4)

    def read(topic: str, **more: Any) -> ReadFromRocketMQ:
        return ReadFromRocketMQ(topic, start=StartFrom.earliest(), stop=StopAt.latest(), **more)

    with beam.Pipeline(options=options([])) as pipeline:
        records = pipeline | read("orders") | Audit("read", topic="orders-audit")
        kept = records | beam.Filter(lambda record: record.keys != ("order-11",))
        _ = kept | "bills" >> WriteToRocketMQ("bills")
        _ = kept | "copy" >> WriteToRocketMQ("orders-copy")
        _ = pipeline | "bad" >> read("bad-events", deserializer=JsonDeserializer(), dead_letter_topic="orders-dead")


def prepare(page: str, folder: Path, ports: Mapping[str, str]) -> None:
    """Makes an empty folder of a clone, with the reader's own files, and those that blocks of the page are."""
    for path in ROOT.iterdir():
        (folder / path.name).symlink_to(path)
    files = SPECIAL["files"] | {"pipeline.py": BLOCKS[0].code}
    if (ROOT / page).is_file():
        found = re.findall(r"^```\w+\n((?:--|#) ([\w/]+\.\w+)\b.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
        files |= {name: text for text, name in found}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(here(text, folder, ports))
    for name in ("claims", "tmp", "users"):
        (folder / name).mkdir()
    pq.write_table(
        pa.table({"id": ["u1", "u2"], "tier": ["gold", "tin"], "region": ["north", "south"]}),
        folder / "users" / "users.parquet",
    )


def here(text: str, folder: Path, ports: Mapping[str, str]) -> str:
    """Returns a text with the ports and folders of this test."""
    for port, ours in ports.items():
        text = re.sub(rf"\b{port}\b", ours, text)
    return re.sub(r"(?<![\w.])/(?:tmp|var/lib)/", f"{folder}/", text)


@contextmanager
def going_on(text: str, sign: Mapping[str, Any], at: str) -> Iterator[None]:
    """Types a line that goes on, and waits for the sign that it has begun; at the end, Ctrl-C ends it."""
    has_begun = begun_by(sign, at)
    with on_terminal(["bash", "-c", text], os.environ) as terminal:
        terminal.wait_until(lambda: has_begun(terminal), f"$ {text}", still_s=240)
        try:
            yield
        finally:  # who is only killed leaves jobs behind
            terminal.type(CTRL_C)
            ended = terminal.wait(still_s=180)
        assert (128 - ended if ended < 0 else ended) == sign.get("status", 130), f"$ {text}\n{terminal.shown}"
        assert "Traceback" not in terminal.shown


def begun_by(sign: Mapping[str, Any], at: str) -> Callable[[Terminal], bool]:
    """Returns a check that a line has begun, as commands.toml says."""
    if "says" in sign:
        return lambda terminal: sign["says"] in terminal.shown
    if "makes" in sign:
        return lambda _: any(Path.cwd().glob(sign["makes"]))
    before = count(sign["writes"], at)

    def has_written(_: Terminal) -> bool:
        with closing(RemotingProducer(ClientOptions(at), "events")) as producer:
            producer.send(EVENT)
        return count(sign["writes"], at) > before

    return has_written


def count(topic: str, at: str) -> int:
    with closing(RemotingQueueClient(ClientOptions(at))) as client:
        return sum(map(client.max_offset, client.queues(topic)))


def run(line: Line, text: str) -> None:
    """Runs a line to its end. The status is 0, unless the page shows an error or commands.toml has another one."""
    command = ["bash", "-o", "pipefail", "-c", text]
    if answers := re.findall(r"\[y/N\] (\w+)", "\n".join(line.prints)):
        with on_terminal(command, os.environ) as terminal:
            for answer in answers:
                terminal.wait_for(r"\[y/N\] ")
                terminal.type(answer + ENTER)
            assert terminal.wait() == 0, terminal.shown
        return
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=at_most(300),
        errors="replace",
    )
    errors = [shown for shown in line.prints if shown.startswith("rmqio: ")]
    allowed = {1, 2} if errors else {line.of("status") or 0}
    assert done.returncode in allowed, f"$ {text}\n{done.stdout}\n{done.stderr}"
    assert all(error in done.stderr for error in errors), f"$ {text}\n{done.stderr}"
    if "--report" in text and line.prints:
        assert done.stdout.strip() == "\n".join(line.prints)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in _IN_THE_GATE else pytest.mark.examples) for page in PAGES]
)
def test_the_commands_of_a_page_run(
    page: str, at: str, ports: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topics(at)
    prepare(page, tmp_path, ports)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    begun: set[str] = set()
    with ExitStack() as stack:
        for line in PAGES[page]:
            text = here(line.text, tmp_path, ports)
            if line == BROKER or text in begun:
                continue
            if (sign := line.of("endless")) is None:
                run(line, text)
            else:
                stack.enter_context(going_on(text, sign, at))
                begun.add(text)
