"""Tables of a schema registry: each subject is a table, which is made when it is used.

A registry has Confluent's REST API, or RocketMQ's own, whose address ends with /schema-registry/v1 (and a cluster and
a tenant, if they are not the default ones).
"""

from __future__ import annotations

import base64
import binascii
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from rmqio.errors import LocalError, RmqioError
from rmqio.serde.registry import OpenSchemaRegistry, RegistryUnavailable, RestRegistry
from rmqio.serde.registry.rest import AVRO, JSON, PROTOBUF, TypedSchema, TypedSubjects
from rmqio.sql.analysis.definitions import check_table
from rmqio.sql.catalog import columns
from rmqio.sql.catalog.columns import JsonSchemaColumns, quoted
from rmqio.sql.catalog.tables import Table, table_of
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.scripts.script import Texts
from rmqio.sql.syntax import statements
from rmqio.topics import topic_fault

# Schemas of a registry as tables: Avro, JSON Schema and Protobuf.

FORMATS: Final = {AVRO: "avro-confluent", JSON: "json-confluent", PROTOBUF: "protobuf-confluent"}
Columns = list[tuple[str, str]]
_MOST_FILES: Final = 1000


def columns_and_options(found: TypedSchema, url: str, subjects: TypedSubjects) -> tuple[Columns, dict[str, str]]:
    """Returns the columns of a schema, and the options of its format. Raises `Refusal`, and the registry's errors."""
    name = FORMATS.get(found.kind)
    if name is None:
        raise Refusal(f"its schema is of the type {found.kind}, and tables are of {', '.join(FORMATS)}", None)
    options = {"format": name, f"{name}.url": url, f"{name}.subject": found.subject}
    if found.kind == PROTOBUF:
        columns, of_message = _of_protobuf(found, subjects)
        return columns, options | {f"{name}.{key}": each for key, each in of_message.items()}
    if found.references:
        names = ", ".join(each.name for each in found.references)
        raise Refusal(f"its schema refers to others ({names}): register one with their definitions in it", None)
    options[f"{name}.schema"] = found.schema
    if found.kind == AVRO:
        return columns_of_avro(found.schema), options
    try:
        made = JsonSchemaColumns(_parsed(found.schema))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _not_valid(error) from None
    if made.leaves_nulls_out:
        options["json.encode.ignore-null-fields"] = "true"
    return made.columns, options


def columns_of_avro(schema: str) -> Columns:
    """Returns the columns of a schema of Avro. Raises `Refusal`."""
    try:
        return list(columns.columns_of(_parsed(schema)))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _not_valid(error) from None


def _parsed(schema: str) -> Any:
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise _not_valid(error) from None


def _not_valid(error: Exception) -> Refusal:
    return Refusal(f"its schema is not valid: {type(error).__name__}: {error}", None)


def _of_protobuf(found: TypedSchema, subjects: TypedSubjects) -> tuple[Columns, dict[str, str]]:
    """The first message of the file is the table, with all files that it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from rmqio.sql.formats.protobuf_schemas import NotDescriptors, columns_of, messages_of

    files: dict[str, Any] = {}
    _collect(found, "", subjects, files)
    own = files.pop("")
    if not own.name or own.name in files:
        own.name = f"{found.subject}.proto"
    text = base64.b64encode(FileDescriptorSet(file=[*files.values(), own]).SerializeToString()).decode("ascii")
    try:
        messages = messages_of(text)
    except NotDescriptors as error:
        raise Refusal(f"its schema cannot be used: {error}", None) from None
    if not own.message_type:
        raise Refusal("its schema has no message", None)
    first = own.message_type[0].name
    message = messages[f"{own.package}.{first}" if own.package else first]
    return list(columns_of(message)), {"message-name": message.full_name, "descriptor": text}


def _collect(schema: TypedSchema, name: str, subjects: TypedSubjects, files: dict[str, Any]) -> None:
    """Adds the files that a schema imports, then its own, under the names by which they are imported."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if len(files) >= _MOST_FILES:
        raise Refusal(f"its schema imports more than {_MOST_FILES} files", None)
    for each in schema.references:
        if each.name not in files:
            _collect(subjects.version(each.subject, each.version), each.name, subjects, files)
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema.schema, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise Refusal(
            f"the registry does not give the schema of {schema.subject} as a descriptor (format=serialized): make the "
            "table with 'protobuf-confluent.descriptor-file'",
            None,
        ) from None
    if name:
        file.name = name
    files[name] = file


# Requests to a schema registry while a statement is planned: one deadline for them all, and a word while they take.

T = TypeVar("T")

DEADLINE_S: Final = 15.0
"""How long all requests may take that the list of tables, or one table, needs."""
_SILENT_S: Final = 2.0
"""After what time the terminal says that a registry is waited for."""


def asked(url: str, ask: Callable[[], T]) -> T:
    """Returns the answer of a registry. Raises what `ask` does, and `RegistryUnavailable` after the deadline.

    A thread asks. Timeouts of the client do not suffice: they start again with each try and each piece of an answer.

    Args:
      url: of the registry, without credentials.
      ask: makes all the requests.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((ask(), None))
        except BaseException as error:  # noqa: BLE001 - raised again below
            answers.put((None, error))

    threading.Thread(target=run, name="rmqio registry", daemon=True).start()
    try:
        answer, error = _first(answers, url)
    except queue.Empty:
        raise RegistryUnavailable(
            f"schema registry {url} has not answered completely within {DEADLINE_S:g} s: it is overloaded, or this is "
            "not its address. Try again, or write CREATE TABLE, which asks no registry"
        ) from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


def _first(
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]], url: str
) -> tuple[T | None, BaseException | None]:
    try:
        return answers.get(timeout=min(_SILENT_S, DEADLINE_S))
    except queue.Empty:
        # The shell completes names in another thread, beside a prompt.
        if threading.current_thread() is threading.main_thread():
            print(f"waiting up to {DEADLINE_S:g} s for schema registry {url}", file=sys.stderr, flush=True)
    return answers.get(timeout=max(DEADLINE_S - _SILENT_S, 0.0))


_KEPT_FOR_S: Final = 30.0
"""How long the list of subjects is used."""
_FAILED_FOR_S: Final = 5.0
"""How long a list that failed is not asked for again: each key in the shell would wait for it."""


class Subject(NamedTuple):
    """A subject that can become a table.

    Attributes:
      topic: the topic that it is about.
      columns: of the newest schema, names and types.
      options: of the table, beside the topic.
    """

    topic: str
    columns: list[tuple[str, str]]
    options: dict[str, str]


class Registry(Protocol):
    """A registry's subjects, by the names of tables. `url`: its address, without credentials."""

    url: str

    def names(self) -> list[str]:
        """Returns the names of tables. Raises `RmqioError`."""

    def subject(self, name: str) -> Subject:
        """Returns the table of the newest schema. Raises `RmqioError` and `Refusal`."""


class RegistryTables:
    """The tables of a registry, each made once. It is a `FurtherTables`.

    Args:
      url: of the registry.
      texts: keeps the statements that tables are made of.
    """

    def __init__(self, url: str, texts: Texts) -> None:
        self._url, self._texts = url, texts
        try:
            self._registry: Registry = _OpenSchema(url) if "/schema-registry/v1" in url else _Confluent(url)
        except LocalError as error:
            raise SqlError(f"--catalog: {error}") from error
        self._names: list[str] = []
        self._until = 0.0
        self._failure: RmqioError | None = None
        self._tables: dict[str, Table] = {}
        self._created: dict[str, str] = {}

    def names(self) -> Sequence[str]:
        """Returns the names of all tables. Raises `SqlError`."""
        if time.monotonic() >= self._until:
            self._failure = None
            try:
                found = asked(self._registry.url, self._registry.names)
                self._names = [each for each in found if each and each.isprintable()]
                self._until = time.monotonic() + _KEPT_FOR_S
            except RmqioError as error:
                self._failure = error
                self._until = time.monotonic() + _FAILED_FOR_S
        if self._failure is not None:
            raise SqlError(str(self._failure)) from self._failure
        return self._names

    def table(self, name: str) -> Table | None:
        """Returns the table of a subject; None: there is none. Raises `Refusal` if it cannot be used; `SqlError`."""
        if name not in self._tables:
            if name not in self.names():
                return None
            try:
                self._tables[name] = self._made(name, asked(self._registry.url, lambda: self._registry.subject(name)))
            except RmqioError as error:
                raise Refusal(str(error), None) from error
        return self._tables[name]

    def text(self, name: str) -> str:
        """Returns the CREATE TABLE of a subject."""
        return self._created[name]

    def _made(self, name: str, subject: Subject) -> Table:
        if topic_fault(subject.topic):
            raise Refusal(f"its subject says that the topic is {subject.topic}, and no topic can have that name", None)
        if not subject.columns:
            raise Refusal("its schema has no fields, and a table needs a column", None)
        options = {"topic": subject.topic, **subject.options}
        text = (
            f"CREATE TABLE {quoted(name)} (\n"
            + ",\n".join(f"  {quoted(each)} {kind}" for each, kind in subject.columns)
            + "\n) WITH (\n"
            + ",\n".join("  {} = {}".format(*map(_string, each)) for each in options.items())
            + "\n)"
        )
        try:
            (statement,) = self._texts.parse(text, self._url, is_made=True)
        except SqlError as error:
            raise Refusal(f"its columns: {error.message}", None) from None
        assert isinstance(statement, statements.CreateTable)
        table = table_of(statement)
        check_table(table)
        self._created[name] = text
        return table


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class _Confluent:
    """Subjects of Confluent's API: `orders-value` is about the values of the topic orders."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._registry = RestRegistry(url)
        self.url = self._registry.url
        self._typed = TypedSubjects(self._registry)
        self._subjects: dict[str, str] = {}

    def names(self) -> list[str]:
        subjects = self._registry.subjects()
        # The schema of a key is not a table; a subject without a suffix is one, unless there is one with it.
        found = {each: each for each in subjects if not each.endswith(("-value", "-key"))}
        found |= {each.removesuffix("-value"): each for each in subjects if each.endswith("-value")}
        self._subjects = found
        return sorted(found)

    def subject(self, name: str) -> Subject:
        found = self._typed.version(self._subjects[name])
        return Subject(name, *columns_and_options(found, self._url, self._typed))


class _OpenSchema:
    """Subjects of RocketMQ's schema registry: a subject is a topic."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._registry = OpenSchemaRegistry(url)
        self.url = self._registry.url

    def names(self) -> list[str]:
        return self._registry.subjects()

    def subject(self, name: str) -> Subject:
        found = self._registry.newest(name)
        options = {
            "format": "avro-openschema",
            "avro-openschema.url": self._url,
            "avro-openschema.subject": name,
            "avro-openschema.schema": found.schema,
        }
        return Subject(name, columns_of_avro(found.schema), options)
