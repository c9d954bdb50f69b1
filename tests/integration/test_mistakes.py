"""Mistakes, each made as a user makes it: what is said is short, ends with the cause, and comes soon."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from typing import Final, NamedTuple

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("pyspark", reason="SparkRunner needs the extra 'spark'")

from rmqio.client.producer import RemotingProducer
from rmqio.local import LocalRocketMQ
from rmqio.model import Message
from rmqio.options import ClientOptions
from tests.helpers.programs import program
from tests.helpers.servers.guarded import Guarded, credentials_file
from tests.helpers.servers.ports import reserved_port
from tests.helpers.servers.postgresql import postgresql
from tests.helpers.waiting import at_most

pytestmark = pytest.mark.broker

PASSWORD: Final = "hunter2-7d1e"
"""In each place of these commands that takes a password."""
TABLES: Final = """CREATE TABLE orders (id INT, name STRING) WITH ('topic' = '{topic}');
CREATE TABLE sink (id INT, name STRING) WITH ('topic' = '{other}');
"""
FILES: Final = (
    "CREATE TABLE f (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'missing.csv');"
    " CREATE TABLE g (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '/proc/none/out');"
)
DATABASE: Final = (
    "CREATE TABLE d (a INT) WITH ('connector' = 'jdbc', 'url' = 'postgresql://{postgres}', 'table-name' = 't'"
)
"""Without the user, and the parenthesis behind it."""
JOB: Final = TABLES + "INSERT INTO sink SELECT id, name FROM orders;"
JAVA_THAT_TELLS: Final = "#!/bin/sh\ntouch {here}/java-ran\nexit 1\n"
BEAM, JAVA = "apache_beam", "a JVM"


class Row(NamedTuple):
    """A mistake, and what is said about it.

    `command`: words in braces are what `Places` has. `told`: the line with the cause, where dots stand for any text; it
    is the last one, but for SQL, which shows the place below it. `files`: by name, in the folder where the command
    runs. `started`: what may have been started by then, because only that can tell. `by_spark`: Spark shows the
    error of a program of the user, with tracebacks that rmqio does not print, and a code behind it.
    """

    command: str
    told: str
    files: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    started: frozenset[str] = frozenset()
    by_spark: bool = False


def sql(told: str, text: str, **env: str) -> Row:
    """A job on a name server that is away: what is wrong with its text is told before."""
    command = "rmqio sql job.sql --name_server {closed} --stop latest"
    return Row(command, f"rmqio sql: job.sql:3:...: {told}", {"job.sql": TABLES + text}, env)


def job(options: str, told: str, files: Mapping[str, str] = {}, **env: str) -> Row:
    """A job that is right. Beam is imported to know its options, and those of its runner."""
    command = f"rmqio sql job.sql --name_server {{mq}} {options}"
    return Row(command, f"rmqio sql: {told}", {"job.sql": JOB, **files}, env, frozenset({BEAM}))


def copy(options: str, told: str, files: Mapping[str, str] = {}, **env: str) -> Row:
    return Row(f"rmqio copy {options}", f"rmqio copy: {told}", files, env, frozenset({BEAM}))


def kept(version: int, told: str) -> Row:
    """A stream with the folder of another one."""
    state = {"version": version, "buckets": 8, "shape": ["source 0: Read another"]}
    files = {"kept/offsets/0": "v1", "kept/rmqio.json": json.dumps(state)}
    return job("--runner SparkRunner --streaming --checkpoint_dir kept", told, files)


ROWS: Final = {
    "no Java": job(
        "--runner SparkRunner --stop latest",
        "SparkRunner needs Java 17 or newer, but JAVA_HOME is not set, and PATH has no java. Install it, ...",
        JAVA_HOME="",
        PATH="",
    ),
    "Java too old": job(
        "--runner SparkRunner --stop latest",
        "SparkRunner needs Java 17 or newer, but {here}/old/bin/java is Java 8. Install it, ...",
        {"old/bin/java": JAVA_THAT_TELLS, "old/release": 'JAVA_VERSION="1.8.0_392"\n'},
        JAVA_HOME="{here}/old",
    ),
    "no PySpark": job(
        "--runner SparkRunner --stop latest",
        "SparkRunner needs pyspark: pip install 'rmqio[spark]'",
        {"path/pyspark/__init__.py": "raise ModuleNotFoundError('as if it were not there', name='pyspark')"},
        PYTHONPATH="{here}/path",
    ),
    "PySpark too new": job(
        "--runner SparkRunner --stop latest",
        "SparkRunner was not tested with the installed pyspark 9.0.0; ... Install a tested version: ...",
        {"path/pyspark/__init__.py": "__version__ = '9.0.0'"},
        PYTHONPATH="{here}/path",
    ),
    "broker away": Row(
        "rmqio peek {topic} --name_server {mq} --address_map {broker}={closed}",
        "rmqio: cannot connect to {closed}: ... Connection refused; brokers are reached at the addresses that ...",
    ),
    "wrong port": Row(
        "rmqio topics --name_server {closed}",
        "rmqio: ... no name server answers: cannot connect to {closed}: ... Connection refused; check the address ...",
    ),
    "a port that is no RocketMQ": Row(
        "rmqio topics --name_server {http}",
        "rmqio: ... {http} does not speak RocketMQ's protocol: ...; check the address ...",
    ),
    "name server away": Row(
        "rmqio topics --name_server {silent}",
        "rmqio: ... no name server answers: {silent}: no answer to request ... within 3000 ms; check the address ...",
    ),
    "misspelt runner": Row(
        "rmqio sql job.sql --runner SparkRuner",
        "rmqio sql: ... runner 'SparkRuner' is unknown; the nearest known one is 'SparkRunner'. ...",
        {"job.sql": JOB},
    ),
    "option": Row("rmqio sql job.sql --stopp latest", "rmqio sql: unknown argument '--stopp'; did you mean --stop?..."),
    "value of an option of Beam missing": job(
        "--checkpoint_dir", "argument --checkpoint_dir: expected one argument (see rmqio sql --help)"
    ),
    "value of an option of Beam wrong": copy(
        "--from some.csv --to out/?format=csv --parallelism x",
        "argument --parallelism: invalid int value: 'x'",
        {"some.csv": "a\n1\n"},
    ),
    "options of a job": Row(
        f"python {program('word_count')} --source_topik orders",
        "word_count.py: unknown argument '--source_topik'; did you mean --source_topic? ...",
    ),
    "a second file": Row(
        "rmqio sql job.sql other.sql", "rmqio sql: unknown argument 'other.sql' ...", {"job.sql": JOB, "other.sql": JOB}
    ),
    "topic": Row(
        "rmqio peek {topic}s --name_server {mq}", "rmqio: topic '{topic}s' does not exist; did you mean {topic}?"
    ),
    "group": Row(
        "rmqio offsets reset {topic} --group biling --to earliest --name_server {mq}",
        "rmqio: group 'biling' has no offset in topic '{topic}', and no member online; ...",
    ),
    "tag expression": Row(
        "rmqio peek {topic} --tags 'paid | sent' --name_server {closed}",
        "rmqio peek: argument --tags: tags are 'paid | sent'; write || between two tags: ...",
    ),
    "SQL file missing": Row("rmqio sql missing.sql", "rmqio sql: cannot read missing.sql: No such file or directory"),
    "column": sql("there is no column nme: did you mean 'name'?", "INSERT INTO sink SELECT id, nme FROM orders;"),
    "function": sql(
        "there is no function UPER: did you mean 'UPPER'?", "INSERT INTO sink SELECT id, UPER(name) FROM orders;"
    ),
    "table": sql("there is no table oders: did you mean 'orders'?", "INSERT INTO sink SELECT id, name FROM oders;"),
    "format": sql(
        "format is 'jsn': did you mean 'json'?", "CREATE TABLE t (id INT) WITH ('topic' = 't', 'format' = 'jsn');"
    ),
    "type": sql("INTT is not a type: did you mean 'INT'?", "CREATE TABLE t (id INTT) WITH ('topic' = 't');"),
    "unclosed quote": sql(
        "the string does not end: a single quote is missing", "INSERT INTO sink SELECT id, 'a FROM orders;"
    ),
    "a table option": sql(
        "the option 'topc' is unknown: did you mean 'topic'?",
        f"CREATE TABLE t (id INT) WITH ('topc' = 't', 'password' = '{PASSWORD}');",
    ),
    "a start time": Row(
        "rmqio sql job.sql --start timestamp:yesterday",
        "rmqio sql: argument --start: time 'yesterday' is neither ISO 8601 like ...",
        {"job.sql": JOB},
    ),
    "a start offset beyond the end": Row(
        "rmqio peek {topic} --queue {name}:0 --offset 1000 --name_server {mq}",
        "rmqio: queue {name}:0 of topic '{topic}' has no offset 1000: it holds 0 to 0, and 1 is its end",
    ),
    "checkpoint folder unwritable": job(
        "--runner SparkRunner --streaming --checkpoint_dir /proc/none", "cannot write /proc/none/... No such file ..."
    ),
    "checkpoint folder of another pipeline": kept(
        3, "file:{here}/kept holds the state of another pipeline: ... another --checkpoint_dir"
    ),
    "checkpoint folder of a newer version": kept(
        99, "file:{here}/kept was written by another version of rmqio: it has format 99, ... another --checkpoint_dir"
    ),
    "no rights on the topic": Row(
        "rmqio produce {guarded_topic} x {guarded} --credentials file:{reader}",
        "rmqio: ...User:reader has no permission to access Topic:{guarded_topic} ...",
    ),
    "wrong secret": Row(
        "rmqio produce {guarded_topic} x {guarded} --credentials file:{wrong}", "rmqio: ...check signature failed..."
    ),
    "foreign certificate": Row(
        "rmqio topics {guarded} --tls_ca_file {other_ca}", "rmqio: ... certificate is not valid ..."
    ),
    "TLS to a plain port": Row(
        "rmqio topics --tls --name_server {mq}",
        "rmqio: ...: the peer closed the connection when TLS began. Does it ...",
    ),
    "body too large": Row(
        "sh -c 'head -c 5000000 /dev/zero | rmqio produce {topic} - --name_server {mq}'",
        "rmqio: message body has 5000000 bytes; the broker's maximum is 4194304",
    ),
    "disk full": Row(
        "{mounting} sh -c 'mount -t tmpfs -o size=4k none full && rmqio copy --from many.csv --to full/?format=csv'",
        "rmqio copy: full/...csv cannot be written: No space left on device",
        {"full/none": "", "many.csv": "a,b\n" + "1,2\n" * 5000},
        started=frozenset({BEAM}),
    ),
    "port of `rmqio local` taken": Row(
        "rmqio local --port {taken}",
        "rmqio local: port {taken} of 127.0.0.1, wanted for the name server, is in use by another process: ...",
    ),
    "database password wrong": copy(
        "--from postgresql://reader@{postgres}?password_env=PW#t --to out/?format=csv",
        't of postgresql://{postgres} cannot be read: ... password authentication failed for user "reader"',
        PW=PASSWORD,
    ),
    "database table missing": copy(
        "--from postgresql://postgres@{postgres}#ordrs --to out/?format=csv", "...ordrs... does not exist..."
    ),
    "file of a table missing": Row(
        f'rmqio sql -e "{FILES} SELECT a FROM f"', "rmqio sql: the table f cannot be read: there is no file missing.csv"
    ),
    "file of a table missing, in a job": Row(
        "rmqio sql job.sql",
        "rmqio sql: the table f cannot be read: there is no file missing.csv",
        {"job.sql": f"{FILES} INSERT INTO g SELECT a FROM f;"},
    ),
    "folder of a table unwritable": Row(
        f'rmqio sql -e "{FILES} INSERT INTO g VALUES (1)"',
        "rmqio sql: the table g cannot be written: /proc/none/out: No such file or directory",
    ),
    "password of a table's database wrong": Row(
        f"rmqio sql -e \"{DATABASE}, 'username' = 'reader', 'password_env' = 'PW'); SELECT a FROM d\"",
        'rmqio sql: table t of postgresql://{postgres} cannot be read: ... authentication failed for user "reader"...',
        env={"PW": PASSWORD},
        started=frozenset({BEAM}),
    ),
    "table of a table's database missing": Row(
        f"rmqio sql -e \"{DATABASE}, 'username' = 'postgres'); SELECT a FROM d\"",
        'rmqio sql: table t of postgresql://{postgres} cannot be read: relation "t" does not exist...',
        started=frozenset({BEAM}),
    ),
    "file of credentials missing": Row(
        f'rmqio sql -e "{TABLES} SELECT id FROM orders" --credentials file:missing --name_server {{closed}}',
        "rmqio sql: credentials: cannot read missing: No such file or directory",
    ),
    "file of credentials of a copy missing": Row(
        "rmqio copy --from rocketmq://{closed}/orders --to out/?format=csv --credentials file:missing",
        "rmqio copy: credentials: cannot read missing: No such file or directory",
    ),
    "file of TLS missing": Row(
        f'rmqio sql -e "{TABLES} SELECT id FROM orders" --tls_ca_file missing --name_server {{closed}}',
        "rmqio sql: TLS: cannot read the certificate authorities in missing: No such file or directory",
    ),
    "file of TLS of a copy missing": Row(
        "rmqio copy --from rocketmq://{closed}/orders --to out/?format=csv --tls_certificate_file missing",
        "rmqio copy: TLS: cannot use the certificate in missing: No such file or directory",
    ),
    "mode of a database": Row(
        "rmqio copy --from some.csv --to sqlite:///some.db#t?mode=replace",
        "rmqio copy: sqlite:///some.db#t: mode is 'replace'; it must be ...",
    ),
    "CSV file missing": Row(
        "rmqio copy --from missing.csv --to out/?format=jsonl", "rmqio copy: no file matches missing.csv"
    ),
    "Avro schema file missing": sql(
        "the schema's file 'missing.avsc' cannot be read: No such file or directory",
        "CREATE TABLE t (id INT) WITH ('topic' = 't', 'format' = 'avro', 'avro.schema-file' = 'missing.avsc');",
    ),
    "rule with a bad regex": Row(
        "rmqio rules run rules.json --topic {topic} --name_server {mq}",
        "rmqio: ...the regular expression '(a' cannot run without backtracking: missing ): ...",
        {"rules.json": json.dumps([{"id": "r", "condition": {"field": "a", "is": "regex", "value": "(a"}}])},
    ),
    "mapping without a source": Row(
        "rmqio rules check rules.json --mapping mapping.yml",
        "rmqio: mapping.yml: sources[0] has none of category, product, service",
        {"rules.json": "[]", "mapping.yml": "sources:\n- when: {a: b}\n"},
    ),
    "a PySpark stream option": Row(
        "python job.py",
        "rmqio.errors.LocalError: there is no option 'subscrib' of the format rocketmq; did you mean subscribe?",
        {
            "job.py": "from pyspark.sql import SparkSession\n"
            "spark = SparkSession.builder.master('local[1]').getOrCreate()\n"
            "spark.readStream.format('rocketmq').option('subscrib', 'orders').option('nameServer', '{closed}').load()\n"
        },
        {"JAVA_HOME": os.environ.get("JAVA_HOME", "")},
        by_spark=True,
    ),
}
assert len(ROWS) == 54


class Places:
    """What the commands name, made when one does: `{mq}` is the name server of a real broker."""

    def __init__(self, request: pytest.FixtureRequest, here: Path) -> None:
        self._request, self._here = request, here

    def __getitem__(self, name: str) -> str:
        if name == "here":
            return str(self._here)
        if name in {"mq", "broker", "name", "topic", "other"}:
            return self._of_a_broker(name)
        if name.startswith("guarded") or name in {"reader", "wrong", "other_ca"}:
            return self._of_a_guarded_broker(name)
        return str(self._request.getfixturevalue(name))

    def filled(self, text: str) -> str:
        return re.sub(r"\{([a-z_]+)\}", lambda found: self[found[1]], text)

    def _of_a_broker(self, name: str) -> str:
        rocketmq: LocalRocketMQ = self._request.getfixturevalue("rocketmq")
        if name in {"topic", "other"}:
            return str(self._request.getfixturevalue("topics")[name == "other"])
        return {"mq": rocketmq.name_server, "broker": rocketmq.broker, "name": rocketmq.name}[name]

    def _of_a_guarded_broker(self, name: str) -> str:
        guarded: Guarded = self._request.getfixturevalue("guarded")
        if name == "guarded":
            tls = f"--tls_ca_file {guarded.ca_file} --tls_certificate_file {guarded.client_file}"
            return f"--name_server {guarded.broker.name_server} {tls}"
        if name == "other_ca":
            return guarded.other_ca_file
        if name == "guarded_topic":
            return guarded.create_topic("theirs")  # again, it is as before
        if name == "reader":
            guarded.create_user("reader", PASSWORD, Topic__theirs=("Sub",))
            return credentials_file(self._here / name, "reader", PASSWORD)
        return credentials_file(self._here / name, "root-of-the-tests", PASSWORD)


@pytest.fixture(scope="module")
def topics(rocketmq: LocalRocketMQ) -> tuple[str, str]:
    found = f"orders-{uuid.uuid4().hex[:8]}", f"sink-{uuid.uuid4().hex[:8]}"
    for each in found:
        rocketmq.create_topic(each, queues=1)
    with closing(RemotingProducer(ClientOptions(rocketmq.name_server), "a_producer")) as producer:
        producer.send(Message(b'{"id": 1}', topic=found[0]))
    return found


@pytest.fixture(scope="module")
def mounting() -> str:
    enter = "unshare --mount --map-root-user"
    if shutil.which("unshare") is None or subprocess.run([*enter.split(), "true"], check=False).returncode:
        pytest.skip("this machine permits no mount of one's own")
    return enter


@pytest.fixture(scope="module")
def closed() -> str:
    return f"127.0.0.1:{reserved_port()}"


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The kernel accepts connections, and nobody answers, as on a machine that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(scope="module")
def taken(silent: str) -> str:
    return silent.partition(":")[2]


class _Http(StreamRequestHandler):
    def handle(self) -> None:
        self.request.recv(1)
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    """What a server of HTTP answers to bytes that are no request."""
    with TCPServer(("127.0.0.1", 0), _Http) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A server that asks for passwords."""
    import psycopg

    with postgresql() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE ROLE reader LOGIN PASSWORD 'another'")
            (file,) = connection.execute("SHOW hba_file").fetchone() or ()
            ways = "'host all postgres 127.0.0.1/32 trust'), ('host all all 127.0.0.1/32 scram-sha-256'"
            connection.execute(f"COPY (VALUES ({ways})) TO '{file}'")
            connection.execute("SELECT pg_reload_conf()")
        yield url.partition("@")[2]


@pytest.mark.parametrize("name", ROWS)
def test_a_mistake_is_told(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    row, places = ROWS[name], Places(request, tmp_path)
    for file, text in {"java/bin/java": JAVA_THAT_TELLS, **row.files}.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(places.filled(text))
        path.chmod(0o755)
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "JAVA_HOME": str(tmp_path / "java"),
        "PYTHONPROFILEIMPORTTIME": "1",  # a line of stderr for each module
        **{key: places.filled(value) for key, value in row.env.items()},
    }
    command, *arguments = shlex.split(places.filled(row.command))
    command = str(programs / command) if (programs / command).exists() else command
    done = subprocess.run(
        [command, *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=at_most(240),
        check=False,
    )
    imports = re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE)
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode in {1, 2}, said
    if row.by_spark:
        assert said.pop().strip().startswith("SQLSTATE")
    elif said[-1].strip("^ ") == "":  # the carets of SQL, below its text
        del said[-2:]
    assert re.fullmatch(".*".join(map(re.escape, places.filled(row.told).split("..."))), said[-1]), said
    assert len(said) <= 3 or row.by_spark, said
    assert PASSWORD not in done.stdout + done.stderr
    started = {BEAM} & {*imports} | ({JAVA} if (tmp_path / "java-ran").exists() else set())
    assert started <= row.started
