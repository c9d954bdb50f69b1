"""Passwords of databases, search engines and Kafka: a pipeline says where they are, and has none of them in it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.transforms.display import DisplayData

pytest.importorskip("sqlalchemy", reason="databases need the extra 'sql-databases'")
pytest.importorskip("pymysql", reason="tables of MySQL need the extra 'sql-databases'")
pytest.importorskip("confluent_kafka", reason="Kafka needs the extra 'kafka'")

from rmqio.connect import ReadFromKafka, ReadFromSql, WriteToElasticsearch, WriteToKafka, WriteToSql
from rmqio.enrich import Enrich, Table
from rmqio.enrich.sql_source import Query
from rmqio.errors import LocalError

SECRET = "a-secret-93b1e7"
DATABASE = "mysql://me@127.0.0.1:1/shop"
MAKE: dict[str, Callable[..., Any]] = {
    "password of WriteToSql": lambda **given: WriteToSql(DATABASE, "users", **given),
    "password of ReadFromSql": lambda **given: ReadFromSql(DATABASE, "users", **given),
    "password of Enrich": lambda **given: Enrich(Table.from_sql(DATABASE, "users", **given), "id"),
    "password": lambda **given: WriteToElasticsearch("http://h:1", "users", username="me", **given),
    "api_key": lambda **given: WriteToElasticsearch("http://h:1", "users", **given),
    "sasl.password of ReadFromKafka": lambda **given: ReadFromKafka("h:1", "t", config=given),
    "ssl.key.password of WriteToKafka": lambda **given: WriteToKafka("h:1", "t", config=given),
}


def used(transform: Any) -> str:
    """What a worker connects with."""
    if isinstance(transform, ReadFromSql):
        return str(transform._database.engine().url.password)
    if isinstance(transform, ReadFromKafka):
        return str(transform._config.cluster._options())
    if isinstance(transform, Enrich):
        source = transform._look_up.wanted.table.source
        assert isinstance(source, Query)
        return str(source.password and source.password.get())
    sink = transform._sink
    if isinstance(transform, WriteToSql):
        return str(sink._database.engine().url.password)
    if isinstance(transform, WriteToKafka):
        return str(sink._cluster._options())
    sink.open()
    found = f"{sink._session.auth} {sink._session.headers}"
    sink.close()
    return found


@pytest.mark.parametrize("source", ["env", "file"])
@pytest.mark.parametrize("name", MAKE)
def test_a_password_is_read_by_the_process_that_connects(
    name: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "password"
    option = f"{name.partition(' of ')[0]}_{source}"
    transform = MAKE[name](**{option: "PW_OF_TEST" if source == "env" else str(path)})  # it is not here yet
    monkeypatch.setenv("PW_OF_TEST", SECRET)
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    assert SECRET in used(transform)
    pipeline = beam.Pipeline()
    is_step = hasattr(transform, "_sink") or isinstance(transform, Enrich)
    _ = (pipeline | beam.Create([{}]) if is_step else pipeline) | transform
    shown = [pickler.dumps(transform), pipeline.to_runner_api().SerializeToString()]
    if hasattr(transform, "_sink"):
        shown.append(pickle.dumps(transform._sink))
    shown += [repr(each).encode() for each in (transform, vars(transform), DisplayData.create_from(transform).items)]
    assert SECRET.encode() not in b"\n".join(shown)
    monkeypatch.delenv("PW_OF_TEST")
    path.unlink()
    with pytest.raises(LocalError, match=r"PW_OF_TEST is not set in process|cannot be read from .*: No such file"):
        used(transform)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WriteToSql(f"mysql://me:{SECRET}@h/x", "t"), "mysql://h/x: the URL holds a pass.* password_env="),
        (lambda: ReadFromSql(f"mysql://h/x?passwd={SECRET}", "t"), "mysql://h/x: the URL holds a password"),
        (lambda: ReadFromSql(f"mysql://h/x?pasword={SECRET}", "t"), "mysql://h/x: the URL holds a password"),
        (lambda: WriteToSql(f"mysql://h/x?charsett={SECRET}", "t"), "mysql://h/x: .* unexpected .*'charsett'"),
        (lambda: WriteToSql(DATABASE, "t", password_env="A", password_file="b"), "are both given"),
        (lambda: WriteToSql(DATABASE, "t", password_env=f"{SECRET}!"), "password_env is not the name of an env"),
        (lambda: Table.from_sql(f"postgresql://me:{SECRET}@h/x", "t"), "postgresql://h/x: the URL holds a password"),
        (lambda: WriteToSql(f"postgresql://me:{SECRET}/x", "t"), r"postgresql://me:\*\*\*: what is behind the host"),
        (lambda: Table.from_sql(f"postgresql://me:{SECRET}/x", "t"), r"me:\*\*\*: what is behind the host"),
        (lambda: Table.from_sql(f"mysql://me@corp:{SECRET}@h/x", "t"), "mysql://h/x: the URL holds a password"),
        (lambda: Table.from_sql(DATABASE, "t", password_env=f"{SECRET}!"), "password_env is not the name of an env"),
        (lambda: WriteToElasticsearch(f"http://me:{SECRET}@h", "t"), "url holds credentials.* password_env="),
        (lambda: ReadFromKafka("h:1", "t", config={"sasl.password": SECRET}), "sasl.password would .*sasl.password_"),
        (lambda: WriteToKafka("h:1", "t", config={"ssl.key.pem": SECRET}), "ssl.key.pem would travel"),
    ],
)  # fmt: skip
def test_a_password_itself_is_refused_and_not_shown(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(LocalError, match=message) as raised:
        make()
    assert SECRET not in str(raised.value)
