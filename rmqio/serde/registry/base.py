"""The contract of schema registries, their errors, and how schemas are identified.

There are two identifiers of a schema's content. Messages in Confluent's format contain an *id*: a remote registry
assigns it, and the other registries here derive it from the whole schema. Messages in Avro's single-object encoding
contain a *fingerprint*. It covers only the schema's Parsing Canonical Form, without defaults, aliases, documentation
and logical types, so several schemas can have the same one.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import weakref
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from rmqio.errors import LocalError, RmqioError

FINGERPRINT_SIZE: Final = 8
LARGEST_ID: Final = 2**31 - 1
"""Ids are non-negative signed 32-bit numbers, as in Confluent's format."""


class SchemaRegistryError(RmqioError):
    """The registry refuses a request, sends an invalid answer, or contains something that is not an Avro schema."""


class RegistryUnavailable(SchemaRegistryError):
    """The registry does not answer, or reports that it is unavailable. A later try may succeed."""

    retriable = True


class UnknownSchema(SchemaRegistryError):
    """The registry does not have the id, subject, version or fingerprint, or cannot search for it."""


class RegisteredSchema(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    """Counted from 1."""
    id: int
    schema: str
    """The Avro schema as JSON text."""


class SchemaRegistry(Protocol):
    """Stores schemas by subject and version.

    Registries are picklable, equal by configuration (in memory: by content), thread-safe, and usable after a fork. All
    methods raise `SchemaRegistryError`; its flag `retriable` says whether a later try may succeed.
    """

    def register(self, subject: str, schema: str) -> int:
        """Registers a schema as the next version of the subject, unless the subject has it. Returns its id.

        Raises `LocalError` if the text is not the JSON of a schema, or the subject's name is not allowed.
        """
        ...

    def by_id(self, schema_id: int) -> str:
        """The schema with an id. Raises `UnknownSchema`."""
        ...

    def by_version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; None: the newest. Raises `UnknownSchema`."""
        ...

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, ascending. Raises `UnknownSchema` if the subject does not exist."""
        ...

    def subjects(self) -> list[str]:
        """The names of all subjects, sorted."""
        ...

    def by_fingerprint(self, fingerprint: bytes) -> str:
        """The schema with a fingerprint as returned by `fingerprint()`; of several, the one registered first.

        Raises `UnknownSchema`, also if the registry cannot search for fingerprints.
        """
        ...


@lru_cache(maxsize=1024)
def normal_form(schema: str) -> str:
    """A schema's JSON in a normal form, independent of white space and of the order of names.

    Raises `LocalError` if it is not a JSON object, array or string, which are the possible forms of a schema.
    """
    return json.dumps(parsed_json(schema), ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def parsed_json(schema: str) -> Any:
    """The JSON of a schema. Raises `LocalError` if it is not a JSON object, array or string."""
    try:
        schema.encode()
        value = json.loads(schema)
    except json.JSONDecodeError as error:
        raise LocalError(
            f"the schema is not JSON: {error.msg} at line {error.lineno} column {error.colno} "
            "(the name of a type is JSON in quotation marks: '\"string\"')"
        ) from error
    except RecursionError as error:
        raise LocalError("the schema is JSON nested too deeply") from error
    except ValueError as error:  # a lone surrogate, or Python's limit on digits
        raise LocalError("the schema contains a lone surrogate or a number of too many digits") from error
    if not isinstance(value, (dict, list, str)):
        raise LocalError(
            f"the schema is JSON of type {type(value).__name__}; an object, an array or a string is needed"
        )
    return value


def content_id(schema: str) -> int:
    """An id from 1 to `LARGEST_ID`, derived from the schema's whole content: the same in every process and copy.

    It is not derived from the canonical form: a version that only adds a default or a logical type has the canonical
    form of the version before it, and needs its own id. It is not a counter: copies of a registry, and branches of a
    repository with a folder of schemas, would give one number to two schemas. In a registry of 1,000 schemas, two
    schemas get the same id with a probability of 0.02 %, which is detected when the second one is registered.
    """
    digest = hashlib.sha256(normal_form(schema).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % LARGEST_ID + 1


def fingerprint(schema: str) -> bytes:
    """The CRC-64-AVRO of the Parsing Canonical Form: 8 bytes, little endian, as in the single-object encoding.

    Raises `LocalError` if fastavro is not installed, or if the text is not an Avro schema.
    """
    try:
        from fastavro.schema import fingerprint as digest
        from fastavro.schema import to_parsing_canonical_form
    except ImportError as error:
        raise LocalError("fingerprints of Avro schemas need fastavro: pip install 'rmqio[avro]'") from error
    value = parsed_json(schema)
    try:
        canonical = to_parsing_canonical_form(value)
    # For an invalid schema, fastavro also raises KeyError, TypeError and others.
    except Exception as error:
        raise LocalError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    return bytes.fromhex(digest(canonical, "CRC-64-AVRO"))  # fastavro's hexadecimal digits are little endian


def require_fingerprint(fingerprint: bytes) -> None:
    """Raise `LocalError` unless the bytes have the size of a fingerprint."""
    if len(fingerprint) != FINGERPRINT_SIZE:
        raise LocalError(f"a fingerprint of {len(fingerprint)} bytes; a CRC-64-AVRO has {FINGERPRINT_SIZE}")


class ProcessLocal:
    """A registry's state in one process: at least a lock. A pickled one arrives empty.

    A lock that another thread holds during a fork would stay locked in the child forever, and two processes would share
    a connection. Subclasses replace everything that must not be shared in `after_fork`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _live.add(self)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ()

    def after_fork(self) -> None:
        """Called in the child, before anything else."""
        self.lock = threading.Lock()


_live: weakref.WeakSet[ProcessLocal] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for state in list(_live):
        state.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
