"""Tables of a schema registry: each subject is a table, which is made when it is used.

A registry has Confluent's REST API, or RocketMQ's own, whose address ends with /schema-registry/v1 (and a cluster and
a tenant, if they are not the default ones).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from rmqio.errors import LocalError, RmqioError
from rmqio.serde.registry import OpenSchemaRegistry, RestRegistry
from rmqio.serde.registry.rest import TypedSubjects
from rmqio.sql.analysis.tables import check_table
from rmqio.sql.catalog import typed_subjects
from rmqio.sql.catalog.asking import asked
from rmqio.sql.catalog.avro_columns import quoted
from rmqio.sql.catalog.tables import Table, table_of
from rmqio.sql.errors import Refusal, SqlError
from rmqio.sql.scripts.texts import Texts
from rmqio.sql.syntax import statements
from rmqio.topics import topic_fault

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
        return Subject(name, *typed_subjects.table_of(found, self._url, self._typed))


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
        return Subject(name, typed_subjects.columns_of_avro(found.schema), options)
