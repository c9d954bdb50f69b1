"""URLs of `rmqio copy`: their parts, their errors, and secrets from the environment."""

from __future__ import annotations

import re
import sys

import pytest
from apache_beam.internal import pickler

pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")

from rmqio.cli.main import main
from rmqio.connect.copying.job import source_of, target_of
from rmqio.connect.copying.urls import parse_end
from rmqio.errors import LocalError


@pytest.mark.parametrize(
    ("url", "kind", "place", "name", "options"),
    [
        ("rocketmq:orders", "rocketmq", "", "orders", {}),
        ("rocketmq://h:9876/orders?start=latest", "rocketmq", "h:9876", "orders", {"start": "latest"}),
        ("rocketmq://a:1;b:2/orders", "rocketmq", "a:1;b:2", "orders", {}),
        ("kafka://h:9092,i:9092/t?key=id", "kafka", "h:9092,i:9092", "t", {"key": "id"}),
        ("data/*.jsonl", "file", "data/*.jsonl", "", {}),
        ("data/?.csv", "file", "data/?.csv", "", {}),
        ("out/?format=csv&shards=2", "file", "out/", "", {"format": "csv", "shards": "2"}),
        ("file:///tmp/x.avro", "file", "/tmp/x.avro", "", {}),
        ("gs://bucket/x.parquet", "file", "gs://bucket/x.parquet", "", {}),
        ("mysql://me:pw@h/shop?charset=utf8mb4#users?mode=ignore", "mysql", "mysql://me:pw@h/shop?charset=utf8mb4",
         "users", {"mode": "ignore"}),
        ("sqlite:///x.db#SELECT a FROM b WHERE c = '?'", "sqlite", "sqlite:///x.db",
         "SELECT a FROM b WHERE c = '?'", {}),
        ("sqlite:///x.db#selections?mode=ignore", "sqlite", "sqlite:///x.db", "selections", {"mode": "ignore"}),
        ("opensearch://h:9200/orders", "opensearch", "http://h:9200", "orders", {}),
        ("elasticsearch+https://h/orders?id=n", "elasticsearch", "https://h", "orders", {"id": "n"}),
        ("-", "console", "", "", {}),
    ],
)  # fmt: skip
def test_urls(url: str, kind: str, place: str, name: str, options: dict[str, str]) -> None:
    found = parse_end(url)
    assert (found.kind, found.place, found.name, found.options) == (kind, place, name, options)
    assert "pw" not in f"{found.shown}"


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("kafa://h:1/t", "-", "there is no system kafa; did you mean kafka"),
        ("rocketmq:", "-", "rocketmq:... names no topic"),
        ("kafka:t", "-", "must be like kafka://HOST:PORT/NAME"),
        ("kafka://127.0.0.1/", "-", "kafka://127.0.0.1 names no topic: add it, as in kafka://127.0.0.1/TOPIC"),
        ("kafka://h:1,i/t", "-", "kafka://h:1,i/t: i has no port: add it, as in HOST:9092"),
        ("x.jsonl", "opensearch://h:1/", "opensearch://h:1 names no index: add it, as in opensearch://h:1/INDEX"),
        (
            "x.jsonl",
            "opensearch://h:1/Users",
            "/Users: 'Users' is not the name of an index.*; use users",
        ),
        ("x.jsonl", "out/?formt=csv", "out/ has no option formt; did you mean format?"),
        ("x.jsonl", "out/?format=cvs", "out/: format is 'cvs'; .*; did you mean csv?"),
        ("x.jsonl?format=cvs", "-", "x.jsonl: format is 'cvs'; .*; did you mean csv?"),
        ("x.jsonl", "out/?format=avro", "out/: Avro files need a schema: add &schema=FILE"),
        ("x.jsonl", "out/?format=parquet&schema=x", "schema= works only with format=avro, not with parquet: omit it"),
        pytest.param(
            "x.jsonl",
            f"{__file__}/?format=csv",
            "there is a file .*test_urls.py, and a copy writes into a folder: ",
            id="a file as a folder",
        ),
        ("rocketmq:a?strt=latest", "-", "rocketmq:a has no option strt; did you mean start?"),
        ("sqlite:///x.db", "-", "names no table: add it after a #"),
        ("elasticsearch://me:pw@h/x", "-", "holds credentials"),
        ("orders", "-", "orders is neither a system"),
        ("-", "-", "console cannot be a source"),
        ("opensearch://h:1/x", "-", "cannot be a source: a copy can only write to it"),
        ("x.jsonl?formt=csv", "-", "x.jsonl has no option formt; did you mean format"),
        ("x.jsonl", "y.csv", "a copy writes files into a folder: out/.format=csv"),
        ("x.jsonl", "out/?format=csv&shards=two", "shards is 'two'; it must be a whole number"),
        ("rocketmq:a?start=erliest", "-", "start: 'erliest' is not .*did you mean earliest"),
        ("rocketmq:a", "rocketmq:a", "is both read and written"),
        ("rocketmq://127.0.0.1:1/a", "rocketmq:a", "is both read and written"),
        ("kafka://h:1/t", "rocketmq:a?key=id", "rocketmq:a has no option key"),
        ("x.jsonl", "rocketmq:a?ids=n", "rocketmq:a has no option ids; did you mean id?"),
        ("kafka://h:1/t", "out/?format=jsonl&lateness_s=1", "lateness_s needs --follow"),
        ("x.jsonl", "out/?format=jsonl&window_s=60", "window_s needs rows with times, and those of x.jsonl have none"),
        ("x.jsonl", "sqlite:///none.db#t?mode=merge", "sqlite:///none.db#t: mode is 'merge'"),
        ("x.jsonl", "sqlite:///none.db#t?mode=upsrt", "mode is 'upsrt'; .*; did you mean upsert?"),
        ("x.jsonl", "sqlite:///none.db#t?mode=insert&key=a", 'none.db#t: mode="insert" uses no key'),
        ("x.jsonl", "sqlite:///none.db#t?columns=a,b&key=c", "none.db#t: columns leaves out c, which is in key"),
        ("sqlite:///none.db#t?partitions=0", "-", "none.db#t: partitions is 0; it must be from 1 to 1024"),
        ("x.jsonl", "elasticsearch://h:1/x?operation=indx", "h:1/x: operation is 'indx'; .*; did you mean index?"),
        ("x.jsonl", "opensearch://h:1/x?operation=delete", '/x: operation="delete" needs to know which document'),
        ("missing.csv", "out/?format=csv", "no file matches missing.csv"),
        ("s3://me:pw@b/x.csv", "-", "s3://b/x.csv: s3:// needs boto3"),
        ("s3://b/x.csv", "-", "s3://b/x.csv: s3:// needs boto3: pip install 'apache-beam.aws.'"),
        ("rocketmq:a", "s3://b/out/?format=csv", "s3://b/out/: s3:// needs boto3: pip install"),
        ("gs://b/x.csv", "-", "gs:// needs google.cloud.storage: pip install 'apache-beam.gcp.'"),
        ("kafka://h:1/t?auto.offset.reset=latest", "-", "/t: the option auto.offset.reset cannot be set: start says"),
        ("x.jsonl", "sqlite:///x.db#t?password_env=NOT_THERE_7", "environment variable NOT_THERE_7 is not set"),
        ("rocketmq:a", "opensearch://h:1/x?ca_file=/no", "/x: ca_file: cannot read /no: No such file or directory"),
        ("rocketmq:a", "sqlite:///x.db#t?password_file=/no", "#t: password_file: cannot read /no: No such file"),
        ("kafka://h:1/t?ssl.ca.location=/no", "-", "kafka://h:1/t: ssl.ca.location: cannot read /no: No such file"),
        ("x.jsonl", "sqlite:///x.db#t?password=pw", "#t has no option password; did you mean password_env?"),
        ("rocketmq:a", "mysql://me:pw@h/shop#users", "mysql://h/shop#users: .*: the URL holds a password"),
        ("kafka://h:1/t?sasl.password=pw", "-", "/t: the option sasl.password would travel"),
        ("rocketmq:t?x", "-", "options are like"),
        ("kafka://h:1/t?sasl.password=pa&pw", "-", "one of these has no =: an & in a value is written %26"),
        ("postgresql://me@h/db#t?password=pa&pw", "-", "one of these has no ="),
        ("kafka://h:1/t?sasl.password:pw", "-", "one of these has no ="),
        ("x.jsonl", "sqlite:///x.db#t?password_env=Spw7", r"environment variable \*\*\* .* is not set"),
        ("x.jsonl", "mysql://me:p?w@/pw:@h/shop", "mysql://h/shop names no table"),
        (
            "sqlite:///x.db?partition_on=id&partitions=0#t",
            "-",
            "/x.db: the option partition_on stands behind the table",
        ),
        ("sqlite:///x.db?timeuot=3#t", "-", "sqlite:///x.db has no option timeuot; did you mean timeout"),
        ("sqlite:///x.db?mode=ro#SELECT a FROM t", "-", "sqlite:///x.db has no option mode"),
        ("x.jsonl", "sqlite:///x.db?ke=id#t", "sqlite:///x.db has no option ke"),
        ("x.jsonl", "mysql://h/shop?username=me#t", "mysql://h/shop: the option username stands behind the table, as"),
        ("x.jsonl", "mysql://h/shop?pasword=pw#t", "mysql://h/shop has no option pasword; did you mean password_env?"),
        ("x.jsonl", "mysql://h/shop?user_name_env=X#t", "has no option user_name_env; did you mean username_env?"),
        ("sqlite:x.db#t", "-", "sqlite:x.db is not the URL of a database: write it as in sqlite:///FILE#TABLE"),
        ("x.jsonl", "mysql:/me:pw@h/shop#t", "mysql://h/shop is not .* as in mysql://USER@HOST/DB#TABLE"),
        ("x.jsonl", "mysql://h/shop;password=pw", "mysql://h/shop names no table"),
        ("x.jsonl", "mysql://h/shop?user=me@h2&password=pw", "mysql://h2 names no table"),
        ("x.jsonl", "mysql://h:3306/shop?email=pw@h2", "mysql://h2 names no table"),  # h2 is SQLAlchemy's host, too
        ("x.jsonl", "oracle://me/pw@h/shop", "oracle://h/shop names no table"),
        ("x.jsonl", "mysql:/me:pw@h/shop", "mysql://h/shop names no table"),
        ("x.jsonl", "postgresql:me:pw@h/shop", "postgresql://h/shop names no table"),
        ("x.jsonl", "postgresql://us/er:pw@h/shop", "postgresql://h/shop names no table"),
        ("x.jsonl", "postgresql://us#er:pw@h/shop", "postgresql://h/shop: write %40 for an @ behind the first #"),
        ("x.jsonl", "mysql://me:pw#pw?w@h/shop#users", "mysql://h/shop: .* and %23 for a # in a password"),
        ("x.jsonl", "mysq+pymysql://me:pw@h/shop#users", r"there is no system mysq\+pymysql; did you mean mysql"),
        ("x.jsonl", "mysq:/me:pw@h/shop", "mysq://h/shop is neither a system"),
        ("postgresql//me:pw@h/db#x", "-", "//h/db is neither a system"),
        ("//me:pw@h/db#x", "-", "//h/db is neither a system"),
        ("mysql//me:p/w#pw@h/db?format=cvs", "-", "//h/db: format is 'cvs'"),
        ("//me:pw@h/db?formt=csv", "-", "//h/db has no option formt; did you mean format"),
        ("me:pw@h:5432/db", "-", "me://h:5432/db is neither a system"),
        ("mysql//me:pw/db", "-", r"mysql//me:\*\*\* is neither a system"),
        ("postgresql://me:pw/db#t", "-", r"postgresql://me:\*\*\*#t: .*: what is behind .* is no.* number of a port"),
        ("rocketmq:a", "mysql://me:3p/w/db", r"mysql://me:\*\*\* names no table"),
        ("postgresql;//me:pw@h/db", "-", "--from: //h/db is neither a system"),
        ("me@h:pw/db", "-", r"--from: //\*\*\* is neither a system"),
        ("scott/pw@h/x", "-", "--from: //h/x is neither a system"),
        ("http /me:pw@h/x.csv", "-", "no file matches //h/x.csv"),
        ("a@b.cvs", "-", "//b.cvs is neither a system"),
        ("a@b.csv", "-", "no file matches a@b.csv"),
        ("postgresql://me@pw:h/db#t", "-", r"postgresql://\*\*\*#t: .*: what is behind .* is no.* number of a port"),
        (
            "postgresql://me@h/db#t?password_file=pw7",
            "-",
            r"password_file: cannot read \*\*\* .its folder .*: No such file",
        ),
        ("bad://x", "-", "^rmqio copy: --from: there is no system bad: write rocketmq:, kafka:, .{,90}\n"),
        ("x.jsonl", "bad://me:pw@h/x", "^rmqio copy: --to: there is no system bad: write rocketmq:"),
    ],
)
def test_a_url_that_cannot_be_used_is_one_line(
    source: str, target: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "rmqio.connect.copying.job", None)  # whose import is Beam's
    for package in ("boto3", "google.cloud.storage"):
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    assert main(["copy", "--from", source, "--to", target]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pw" not in error.replace(__file__, "")  # whose folder may have any name
    assert re.search(message, error), error


def test_follow_is_for_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", "--from", "x.jsonl", "--to", "-", "--follow"]) == 2
    assert "x.jsonl has an end: --follow works only with topics" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--folow", "unknown argument '--folow'; did you mean --follow? (see rmqio copy --help)"),
        ("y.jsonl", "unknown argument 'y.jsonl' (see rmqio copy --help)"),
        ("--direct_running_mode=no", "argument --direct_running_mode: invalid choice: 'no' (choose from 'in_memory', "),
    ],
)
def test_arguments_that_beam_does_not_take(argument: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", "--from", "/dev/null?format=csv", "--to", "-", argument]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"rmqio copy: {message}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me@h/shop?password_env=PW_OF_TEST&charset=utf8mb4#SELECT a FROM b WHERE c = '?x=y'",
        "mysql://me@h/shop?charset=utf8mb4&password_env=PW_OF_TEST#users",
        "mysql://me@h/shop?charset=utf8mb4#users?password_env=PW_OF_TEST",
    ],
)
def test_the_password_of_a_database_comes_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymysql", reason="tables of MySQL need the extra 'sql-databases'")
    monkeypatch.setenv("PW_OF_TEST", "secret")
    end = parse_end(url)
    assert end.place == "mysql://me@h/shop?charset=utf8mb4"
    read = source_of(end, follow=False, where={})
    assert read._database.engine().url.password == "secret"
    assert b"secret" not in pickler.dumps((end, read))
    monkeypatch.delenv("PW_OF_TEST")
    with pytest.raises(LocalError, match="environment variable PW_OF_TEST is not set"):
        source_of(end, follow=False, where={})


def test_the_password_of_kafka_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")
    monkeypatch.setenv("PW_OF_TEST", "secret")
    end = parse_end("kafka://h:9092/t?sasl.password_env=PW_OF_TEST&sasl.username=me")
    assert end.config() == {"sasl.password_env": "PW_OF_TEST", "sasl.username": "me"}
    read = source_of(end, follow=False, where={})
    write = target_of(end, parse_end("x.jsonl"), endless=False, where={}, dead_letter_topic=None)
    assert b"secret" not in pickler.dumps((end, read, write))
    monkeypatch.delenv("PW_OF_TEST")
    with pytest.raises(LocalError, match="environment variable PW_OF_TEST is not set"):
        source_of(end, follow=False, where={})


def test_neither_help_nor_repr_shows_a_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "secret")
    assert main(["copy", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "sasl.password_env=" in shown
    assert "secret" not in shown
    assert "secret" not in repr(parse_end("mysql://me:secret@h/shop#users"))
