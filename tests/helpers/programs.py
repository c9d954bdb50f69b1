"""The programs in `pipelines/`, as processes and in this one."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rmqio.client import RemotingClientFactory
from rmqio.local import LocalRocketMQ
from rmqio.model import Message, MessageQueue
from rmqio.options import ClientOptions
from rmqio.serde.registry import FolderRegistry
from tests.helpers.check import read_topic
from tests.helpers.client.raw_send import send_all
from tests.helpers.waiting import at_most

ROOT: Final = Path(__file__).resolve().parents[2]
SCHEMAS: Final = FolderRegistry(ROOT / "schemas")


def program(name: str) -> str:
    """Returns the path of a program."""
    return str(ROOT / "pipelines" / f"{name}.py")


def main_of(name: str) -> Callable[[list[str]], int]:
    """Returns what runs a program in this process, and returns its exit status, also of wrong usage."""
    module: Any = importlib.import_module(f"pipelines.{name}")

    def main(argv: list[str]) -> int:
        try:
            status: int = module.program.run(module.build, argv)
        except SystemExit as end:
            return int(end.code or 0)
        return status

    return main


def submitted_provinces(rocketmq: LocalRocketMQ, *command: str, **environment: str) -> list[str]:
    """Submits `province.py` by a script of `runners/`, on three addresses, and returns the provinces in the sink."""
    source, sink = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("addresses", "provinces"))
    for topic in (source, sink):
        rocketmq.create_topic(topic, queues=1)
    bodies = [
        f'{{"id": {number}, "address": "{name}1号"}}' for number, name in enumerate(("北京市", "上海市", "浙江省"))
    ]
    send_all(rocketmq.broker, MessageQueue(source, rocketmq.name, 0), [Message(body.encode()) for body in bodies])
    flags = [
        f"--name_server={rocketmq.name_server}",
        f"--source_topic={source}",
        f"--sink_topic={sink}",
        "--stop=latest",
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = os.environ | {"PATH": path} | environment
    words, limit = [*command, program("province"), *flags], at_most(500)
    done = subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=limit, check=False)
    assert done.returncode == 0, done.stderr
    client = RemotingClientFactory(ClientOptions(rocketmq.name_server)).queue_client()
    with contextlib.closing(client):
        return sorted(json.loads(record.body)["province"] for record in read_topic(client, sink))
