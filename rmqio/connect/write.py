"""`WriteToSql`, `WriteToElasticsearch` and `WriteToKafka`: writes by the sinks of these systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rmqio.connect.kafka.client import Cluster
from rmqio.connect.kafka.sink import KafkaSink
from rmqio.connect.search import SearchOptions, SearchSink, check_operation, check_url, problem_of_index
from rmqio.connect.sink import Batching
from rmqio.connect.sql.engine import Database, TableOptions
from rmqio.connect.sql.sink import SqlSink
from rmqio.connect.transform import WriteToSink
from rmqio.errors import LocalError
from rmqio.security import SecretSource

# `WriteToElasticsearch`: writes documents to Elasticsearch or OpenSearch.


class WriteToElasticsearch(WriteToSink):
    """Writes each element as a document, by the bulk interface that Elasticsearch and OpenSearch have in common.

    Delivery: at least once. A document with an id is stored once, however often it comes; `Record`s have one by their
    place in the topic. Without an id, a repeated bundle stores documents twice. A document that a busy cluster rejects
    is sent again alone.

    Args:
      url: such as `https://host:9200`. Without credentials.
      index: its name, or a callable from the element to it.
      id: the field that is the document's id, or a callable from the element to it.
      operation: "index": a document replaces the one with its id; "create": that one stays; "update": it gets the
        fields of the new one; "delete": it is deleted.
      username: for HTTP's basic authentication.
      password_env, password_file: the environment variable, or the file whose first line is the password. Each process
        that connects reads it there: the pipeline has no password.
      api_key_env, api_key_file: Elasticsearch's key, Base64 as it is given out, in the same way.
      ca_file: certificates of authorities, if the system does not have the right ones.
      timeout_s: of a request.
      batching, retry, batches, on_failure, dead_letter_topic, name_server, security, client_factory: see `WriteToSink`.

    Raises `LocalError` when it is built. An index that does not exist is created, unless the cluster forbids it; then
    bundles fail.
    """

    def __init__(
        self,
        url: str,
        index: str | Callable[[Any], str],
        *,
        id: str | Callable[[Any], Any] | None = None,
        operation: str = "index",
        username: str | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
        api_key_env: str | None = None,
        api_key_file: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 60.0,
        batching: Batching | None = None,
        **options: Any,
    ) -> None:
        check_url(url)
        check_operation(operation, has_id=id is not None)
        if not index or not (isinstance(index, str) or callable(index)):
            raise LocalError(f"index is {index!r}; it must be a name, or a callable of the element")
        if isinstance(index, str) and (problem := problem_of_index(index)) is not None:
            raise LocalError(problem)
        password = SecretSource.of("password", password_env, password_file)
        api_key = SecretSource.of("api_key", api_key_env, api_key_file)
        if api_key is not None and username is not None:
            raise LocalError("api_key and username are both given; a request has one of them")
        more = SearchOptions(id, operation, username, password, api_key, ca_file, timeout_s)
        batching = batching or Batching(max_rows=1_000, max_bytes=5 << 20)
        super().__init__(SearchSink(url, index, more), batching=batching, **options)


# `WriteToKafka`: writes messages to Kafka.


class WriteToKafka(WriteToSink):
    """Writes each element as a message, by the Python client of librdkafka.

    Delivery: at least once. A bundle succeeds only when all replicas in sync have its messages. The client's own
    retries double nothing; a bundle that is run again writes its messages again.

    Order: messages with one key keep their order within a bundle. A message that is written again after an outage of
    more than the client's `message.timeout.ms` can come later than its successors.

    Args:
      bootstrap_servers: such as `host:9092`, several separated by commas.
      topic: for elements that name none. It must exist.
      key: the field that is the key, or a callable from the element to it. None: the key of a `KafkaRecord`, the
        sharding key or first key of a `Record` or `Message`, none of others.
      config: options of librdkafka, such as `{"security.protocol": "SASL_SSL", "compression.type": "zstd"}`.
        A password is in an environment variable or a file: `sasl.password_env`, `sasl.password_file`.
      batching, retry, batches, on_failure, dead_letter_topic, name_server, security, client_factory: see `WriteToSink`.

    Elements: `KafkaRecord`s; bytes, text, `Record`s and `Message`s, whose bodies are the values, and whose properties
    the headers; dicts and other rows, as JSON.

    Raises `LocalError` when it is built, and at the start of a worker if the topic does not exist.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | None = None,
        *,
        key: str | Callable[[Any], Any] | None = None,
        config: Mapping[str, Any] | None = None,
        batching: Batching | None = None,
        **options: Any,
    ) -> None:
        if topic is not None and (not isinstance(topic, str) or not topic):
            raise LocalError(f"topic is {topic!r}; it must be a name")
        cluster = Cluster.of(bootstrap_servers, {"message.timeout.ms": 30_000, **(config or {})})
        batching = batching or Batching(max_rows=10_000, max_bytes=8 << 20)
        super().__init__(KafkaSink(cluster, topic, key), batching=batching, **options)


class WriteToSql(WriteToSink):
    """Writes each element as a row of a table, by SQLAlchemy. Each batch is one transaction.

    Delivery: at least once; with "upsert" and "ignore" a row that comes again changes nothing, so that the table is as
    if each came once. While the server is away, batches are tried again.

    Args:
      url: SQLAlchemy's, such as `mysql://user@host/shop` or `postgresql://user@host/shop`. The extra sql-databases has
        drivers for these two.
      table: its name, or `schema.name`. It must exist.
      key: the columns by which a row is found: a primary key, or those of a unique index. None: the primary key.
      mode: "upsert": a row with the key of another one changes the columns that it has, and a tombstone of Kafka or
        RocketMQ deletes the row of its key; "ignore": it is left out;
        "insert": there is no key, and a row can be stored twice.
      columns: those that are written, if rows have others, too. None: all; a field without a column refuses the row.
      ignore_unknown: fields without a column are left out.
      username: instead of that in the URL.
      password_env, password_file: the environment variable, or the file whose first line is the password. Each process
        that connects reads it there. A URL with a password is refused: it would travel with the pipeline.
      batching, retry, batches, on_failure, dead_letter_topic, name_server, security, client_factory: see `WriteToSink`.

    Values: what JSON has no type for is also taken as text: times as ISO 8601 or milliseconds since 1970, decimals,
    bytes as Base64. A time with a zone becomes UTC in a column without one. Objects and lists become JSON.

    Raises `LocalError` when it is built, and at the start of a worker if the table cannot be used.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        key: str | Sequence[str] | None = None,
        mode: str = "upsert",
        columns: Sequence[str] | None = None,
        ignore_unknown: bool = False,
        username: str | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(table, str) or not table:
            raise LocalError(f"table is {table!r}; it must be the name of a table")
        written = TableOptions.of(key, mode, columns, ignore_unknown=ignore_unknown)
        database = Database(url, username, SecretSource.of("password", password_env, password_file))
        database.check()
        super().__init__(SqlSink(database, table, written), **options)
