"""`WriteToElasticsearch`: writes documents to Elasticsearch or OpenSearch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqio.connect.search.bulk import check_operation
from rmqio.connect.search.sink import SearchOptions, SearchSink, check_url, problem_of_index
from rmqio.connect.sink.options import Batching
from rmqio.connect.sink.transform import WriteToSink
from rmqio.errors import LocalError
from rmqio.security import SecretSource


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
