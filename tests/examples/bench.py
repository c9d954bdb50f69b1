"""The topics of one run of a program of `examples/`, and the program as its text says it is run."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from rmqio import ClientOptions, Message, Record
from rmqio.client import RemotingProducer, RemotingQueueClient
from rmqio.local import LocalRocketMQ
from tests.examples.programs import PROGRAMS, ROOT
from tests.helpers.check import read_topic
from tests.helpers.waiting import at_most

_TIMEOUT_S = 590
_QUEUES = 4


class Bench:
    """Topics whose names end alike, and what is done with them. Programs run in `folder`.

    Args:
      spark: settings of Spark, for spark-submit.
    """

    def __init__(self, rocketmq: LocalRocketMQ, folder: Path, spark: Mapping[str, str] | None = None) -> None:
        self._rocketmq, self.folder = rocketmq, folder
        self._suffix = f"-{uuid.uuid4().hex[:8]}"
        at = ClientOptions(rocketmq.name_server)
        self._client, self._producer = RemotingQueueClient(at), RemotingProducer(at, "examples")
        settings = [f"{name} {value}\n" for name, value in (spark or {}).items()]
        (folder / "spark-defaults.conf").write_text("".join(settings))

    def close(self) -> None:
        self._client.close()
        self._producer.close()

    @property
    def checkpoint(self) -> str:
        """The option for a checkpoint of this run's own."""
        return f"--checkpoint_dir={self.folder / 'checkpoint'}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user who has activated this virtual environment. Plain PySpark gets one core."""
        hidden = ("SPARK", "PYSPARK", "NAMESRV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        return kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
            "PYSPARK_SUBMIT_ARGS": "--master local[1] pyspark-shell",
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def create(self, name: str, orders: Sequence[Message] = ()) -> None:
        """Creates the topics of a program, and writes the orders that it reads."""
        for option, topic in PROGRAMS[name].topics.items():
            self._rocketmq.create_topic(topic + self._suffix, queues=_QUEUES)
            if option == "source_topic":
                for order in orders:
                    self._producer.send(order.replace(topic=topic + self._suffix))

    def command(self, name: str, *options: str) -> list[str]:
        """Returns the command of the program's text, with this run's broker, topics and checkpoint."""
        ours = {
            "python": sys.executable,
            "--name_server": f"--name_server={self._rocketmq.name_server}",
            "--checkpoint_dir": self.checkpoint,
        }
        words = [ours.get(word.partition("=")[0], word) for word in PROGRAMS[name].commands[1]]
        words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
        topics = [f"--{option}={topic}{self._suffix}" for option, topic in PROGRAMS[name].topics.items()]
        return [*words, *topics, *options]

    def run(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self._run(self.command(name, *options))

    def run_told(self, name: str, command: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
        """Runs another command of a program's text, with this run's broker and topics."""
        topics = {topic: topic + self._suffix for topic in PROGRAMS[name].topics.values()}
        at = f"--name_server={self._rocketmq.name_server}"
        words = [at if word.startswith("--name_server=") else topics.get(word, word) for word in command]
        return self._run([*words, *options])

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=at_most(_TIMEOUT_S),
            check=False,
            cwd=self.folder,
            env=self.environment,
        )

    def lines(self, text: str) -> list[str]:
        """Returns lines of output with the names of topics as in texts, and single spaces between words."""
        return [" ".join(line.split()) for line in text.replace(self._suffix, "").splitlines() if line.strip()]

    def holds(self, name: str, option: str) -> list[Record]:
        """Returns what is in a topic of the program."""
        return list(read_topic(self._client, PROGRAMS[name].topics[option] + self._suffix))
