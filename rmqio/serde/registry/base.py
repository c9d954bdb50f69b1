"""What a schema registry is: the contract, its errors, and how schemas are told apart.

Two names of a schema's content are used. An *id* is what messages carry in Confluent's format; a registry behind a
network gives it, the others here derive it from the whole schema. A *fingerprint* is what messages carry in Avro's
single-object encoding, and it covers the schema's Parsing Canonical Form only: not defaults, aliases, documentation and
logical types, so that several schemas can share one.
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
"""Ids are the positive part of a signed 32-bit number, which is what Confluent's format has room for."""


class SchemaRegistryError(RmqioError):
    """The registry refuses, answers nonsense, or holds something that is no Avro schema."""


class RegistryUnavailable(SchemaRegistryError):
    """The registry does not answer, or says that it cannot now. A later try may succeed."""

    retriable = True


class UnknownSchema(SchemaRegistryError):
    """The registry has no such id, subject, version or fingerprint, or cannot look for it."""


class RegisteredSchema(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    """From 1."""
    id: int
    schema: str
    """The Avro schema as JSON text."""


class SchemaRegistry(Protocol):
    """Where schemas are kept by subject and version.

    Picklable; equal by configuration (in memory: by content); safe to call from several threads, and usable after a
    fork. All methods raise `SchemaRegistryError`; its flag `retriable` says whether a later try may succeed.
    """

    def register(self, subject: str, schema: str) -> int:
        """The id of a schema, as the next version of the subject unless the subject has it already.

        Raises `LocalError` for what is not the JSON of a schema or a subject's name that cannot be.
        """
        ...

    def by_id(self, schema_id: int) -> str:
        """The schema with an id. Raises `UnknownSchema`."""
        ...

    def by_version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; None: the newest. Raises `UnknownSchema`."""
        ...

    def versions(self, subject: str) -> list[int]:
        """Those of a subject, ascending. Raises `UnknownSchema` if there is no such subject."""
        ...

    def subjects(self) -> list[str]:
        """Their names, sorted."""
        ...

    def by_fingerprint(self, fingerprint: bytes) -> str:
        """The schema with a fingerprint as `fingerprint()` makes it; of several the one that was registered first.

        Raises `UnknownSchema`, also where the registry cannot look for fingerprints.
        """
        ...


@lru_cache(maxsize=1024)
def normal_form(schema: str) -> str:
    """A schema's JSON without what carries no meaning: white space and the order of names.

    Raises `LocalError` for what is no JSON object, array or string, which are the forms that a schema can have.
    """
    return json.dumps(parsed_json(schema), ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def parsed_json(schema: str) -> Any:
    """The JSON of a schema. Raises `LocalError` for what is no JSON object, array or string."""
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
        raise LocalError("the schema holds a lone surrogate or a number of too many digits") from error
    if not isinstance(value, (dict, list, str)):
        raise LocalError(
            f"the schema is JSON of type {type(value).__name__}; an object, an array or a string is needed"
        )
    return value


def content_id(schema: str) -> int:
    """An id from 1 to `LARGEST_ID` made of the schema's whole content, the same in every process and copy.

    Not of the canonical form: a version that adds a default or a logical type to the one before it has that one's
    canonical form, and has to have an id of its own. Not counted: copies of a registry, and branches of a repository
    with a folder of schemas, would give one number to two schemas. That two schemas get one id happens in a registry
    of 1,000 schemas with a probability of 0.02 %, and is found when the second one comes.
    """
    digest = hashlib.sha256(normal_form(schema).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % LARGEST_ID + 1


def fingerprint(schema: str) -> bytes:
    """The CRC-64-AVRO of the Parsing Canonical Form: 8 bytes, little endian, as the single-object encoding has them.

    Raises `LocalError` if fastavro is not installed or the text is no Avro schema.
    """
    try:
        from fastavro.schema import fingerprint as digest
        from fastavro.schema import to_parsing_canonical_form
    except ImportError as error:
        raise LocalError("fingerprints of Avro schemas need fastavro: pip install 'rmqio[avro]'") from error
    value = parsed_json(schema)
    try:
        canonical = to_parsing_canonical_form(value)
    # fastavro answers what is no schema also with KeyError, TypeError and others.
    except Exception as error:
        raise LocalError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    return bytes.fromhex(digest(canonical, "CRC-64-AVRO"))  # fastavro's hexadecimal digits are little endian


def require_fingerprint(fingerprint: bytes) -> None:
    """Raise `LocalError` unless it has the size of one."""
    if len(fingerprint) != FINGERPRINT_SIZE:
        raise LocalError(f"a fingerprint of {len(fingerprint)} bytes; a CRC-64-AVRO has {FINGERPRINT_SIZE}")


class ProcessLocal:
    """What a registry holds in one process: a lock at least. A pickled one arrives empty, as newly made.

    A lock that another thread holds during a fork would stay locked in the child for ever, and a connection would be
    shared by two processes: subclasses replace what else must not be shared in `after_fork`.
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
