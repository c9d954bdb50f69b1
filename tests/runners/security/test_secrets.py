"""A password in each place of a job that takes one; then all that the job says, shows and keeps is searched for them.

Tests of one module each search its pickles and display data: `tests/unit/security/test_shown.py` for credentials,
`tests/unit/connect/test_secrets.py` for databases, search engines and Kafka.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("sqlalchemy", reason="tables of databases need the extra 'sql-databases'")
pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from cryptography.hazmat.primitives import serialization

from rmqio.client.client import RemotingQueueClient
from rmqio.client.producer import RemotingProducer
from rmqio.model import Message
from rmqio.serde.registry import MemoryRegistry
from tests.helpers.serde.registry_server import Server, answer, confluent, serving
from tests.helpers.servers.guarded import ACCESS_KEY, SECRET, Guarded
from tests.helpers.servers.ports import reserved_port
from tests.helpers.servers.postgresql import postgresql
from tests.helpers.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

MARK: Final = "hunter2-7d1e"
"""Part of each password."""
SEARCHED: Final = (MARK, SECRET, ACCESS_KEY, base64.b64encode(f"me:{MARK}-registry".encode()).decode())
JOB: Final = """
CREATE TABLE orders (id INT) WITH ('topic' = '{source}', 'consumerGroup' = '{source}-group', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset');
CREATE TABLE told (id INT, name STRING) WITH ({database}, 'password' = '{mark}-text');
CREATE TABLE named (id INT, name STRING) WITH ({database}, 'password_env' = 'PASSWORD_OF_TEST');
CREATE TABLE kept (id INT, name STRING) WITH ({database}, 'password_file' = '{folder}/password');
CREATE TABLE sink (id INT, name STRING) WITH ('topic' = '{sink}', 'format' = 'avro-confluent',
  'avro-confluent.url' = '{registry}');
INSERT INTO sink SELECT o.id, t.name FROM orders AS o
JOIN told FOR SYSTEM_TIME AS OF PROCTIME() AS t ON o.id = t.id
JOIN named FOR SYSTEM_TIME AS OF PROCTIME() AS n ON o.id = n.id
JOIN kept FOR SYSTEM_TIME AS OF PROCTIME() AS k ON o.id = k.id;
"""
AT_DEBUG: Final = """
import logging, sys
for name in ("rmqio", "apache_beam", "sqlalchemy", "urllib3"):
    logging.getLogger(name).setLevel(logging.DEBUG)
from rmqio.cli.main import main
sys.exit(main())
"""


class Job:
    """The job in a folder of its own. `said` is all that it has printed and logged, with the lines of `ps`."""

    def __init__(self, guarded: Guarded, registry: Server, database: str, folder: Path) -> None:
        self._folder = folder
        source, self.sink = (guarded.create_topic(f"{each}-{uuid.uuid4().hex[:8]}") for each in ("orders", "sink"))
        with closing(RemotingProducer(guarded.options(), "a_producer")) as producer:
            producer.send(Message(b'{"id": 1}', topic=source))
        (folder / "secret").mkdir()
        self._text = JOB.replace("{source}", source).replace("{sink}", self.sink).replace("{mark}", MARK)
        self._text = self._text.replace("{folder}", str(folder / "secret"))
        self._registry = registry.url.replace("http://", f"http://me:{MARK}-registry@")
        self._database = database
        password = folder / "secret" / "password"
        password.write_text(f"{MARK}-file\n")
        password.chmod(0o600)
        self._environment = {**os.environ, "PASSWORD_OF_TEST": f"{MARK}-env", "KEY_OF_TEST": f"{MARK}-key"}
        self._flags = [
            f"--name_server={guarded.broker.name_server}",
            f"--credentials=file:{guarded.credentials_file}",
            f"--tls_ca_file={guarded.ca_file}",
            f"--tls_certificate_file={guarded.client_file}",
            f"--tls_key_file={encrypted_key(guarded.client_file, folder / 'secret' / 'key.pem')}",
            "--tls_key_password_variable=KEY_OF_TEST",
        ]
        self.said = b""

    def run(self, *flags: str, database: str | None = None, status: int = 0) -> bytes:
        """Returns what a run has printed and logged."""
        script, out = self._folder / "secret" / "job.sql", self._folder / "out"
        of_table = f"'connector' = 'jdbc', 'url' = '{database or self._database}', 'table-name' = 'customers'"
        of_table += ", 'username' = 'postgres'"
        script.write_text(self._text.replace("{database}", of_table).replace("{registry}", self._registry))
        command = [sys.executable, "-c", AT_DEBUG, "sql", str(script), *self._flags, *flags]
        lines: set[bytes] = set()
        with out.open("wb") as file:
            process = subprocess.Popen(command, env=self._environment, stdout=file, stderr=file, cwd=self._folder)
        with contextlib.closing(_Ended(process)):

            def has_ended() -> bool:
                lines.update(command_lines())
                return process.poll() is not None

            until(
                has_ended,
                "the job has ended",
                progress=lambda: out.stat().st_size,
                details=lambda: out.read_bytes()[-4000:].decode(errors="replace"),
                still_s=180,
            )
        found = out.read_bytes()
        assert process.returncode == status, found.decode()[-4000:]
        self.said += b"\n".join([found, *lines])
        return found

    def kept(self) -> bytes:
        """Returns the files that runs have left, with their names."""
        files = [path for path in self._folder.rglob("*") if path.is_file() and "secret" not in path.parts]
        return b"\n".join(str(path.relative_to(self._folder)).encode() + path.read_bytes() for path in files)


class _Ended:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def command_lines() -> Iterator[bytes]:
    """Yields what `ps` shows of each process."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()


def encrypted_key(certificate_file: str, path: Path) -> str:
    key = serialization.load_pem_private_key(Path(certificate_file).read_bytes(), None)
    password = serialization.BestAvailableEncryption(f"{MARK}-key".encode())
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, password),
    )
    return str(path)


@pytest.fixture
def registry() -> Iterator[Server]:
    with serving(confluent(MemoryRegistry())) as server:
        yield server


@pytest.fixture
def database() -> Iterator[str]:
    import psycopg

    with postgresql() as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE customers (id INT, name TEXT)")
            connection.execute("INSERT INTO customers VALUES (1, 'Ann')")
        yield url.replace("postgres@", "")


@pytest.mark.skipif(sys.platform != "linux", reason="reads command lines from /proc")
def test_no_password_of_a_job_is_told_shown_or_kept(
    guarded: Guarded, registry: Server, database: str, tmp_path: Path
) -> None:
    job = Job(guarded, registry, database, tmp_path)
    on_spark = ("--runner=SparkRunner", "--streaming", f"--checkpoint_dir={tmp_path}/checkpoint", "--stop=latest")
    events = ("eventLog.enabled=true", f"eventLog.dir=file:{tmp_path}/events", "eventLog.compress=false")
    (tmp_path / "events").mkdir()

    assert b"Insert into sink" in job.run("--explain", *on_spark)
    job.run(*on_spark, "-v", *(f"--spark_conf=spark.{each}" for each in events))
    with closing(RemotingQueueClient(guarded.options())) as client:
        assert sum(map(client.max_offset, client.queues(job.sink))) == 1, "each password was used"
    assert b"rmqio.runners.spark.sessions.daemon" in job.said, "ps shows the workers"
    nowhere = f"postgresql://127.0.0.1:{reserved_port()}/postgres"
    assert b"Connection refused" in job.run("--start=earliest", "--stop=latest", "-v", database=nowhere, status=1)
    registry.script(answer(401, {"error_code": 401, "message": "no"}))
    assert b"401" in job.run("--start=earliest", "--stop=latest", "-v", status=1)

    kept = job.kept()
    assert b"SparkListenerJobStart" in kept
    assert b"checkpoint/rmqio.json" in kept
    for each in SEARCHED:
        for found in (job.said, kept):
            at = found.find(each.encode())
            assert at < 0, found[max(0, at - 200) : at + 200]
    assert {request.authorization for request in registry.requests} == {f"Basic {SEARCHED[-1]}"}
