"""The bulk interface of Elasticsearch and OpenSearch: requests, and what their answers mean. It knows no network."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rmqio.connect.rows import to_json
from rmqio.connect.sink.base import PerhapsRefused, RowRefused, Written
from rmqio.errors import LocalError, RmqioError
from rmqio.near_names import did_you_mean

OPERATIONS: Final = ("index", "create", "update", "delete")


def check_operation(operation: str, *, has_id: bool) -> None:
    """Raises `LocalError` for an operation that there is not, or that needs an id."""
    if operation not in OPERATIONS:
        raise LocalError(
            f"operation is {operation!r}; it must be one of {', '.join(OPERATIONS)}"
            + did_you_mean(str(operation), OPERATIONS)
        )
    if not has_id and operation in ("update", "delete"):
        raise LocalError(f'operation="{operation}" needs to know which document: give id=')


_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_SET_UP: Final = frozenset({401, 403})
_PERHAPS_SET_UP: Final = frozenset(
    {"index_closed_exception", "invalid_index_name_exception", "routing_missing_exception", "script_exception",
     "validation_exception"}
)  # fmt: skip
"""Errors that can be those of every document; the last one is also that of too many shards for one more index."""
_PERHAPS_SET_UP_REASON: Final = re.compile(
    r"pipeline with id \[.*\] does not exist|only write ops with an op_type of create|no write index is defined"
)
"""As above, of `illegal_argument_exception`, which is also that of a term that is too long and the like."""
_NO_INDEX: Final = "index_not_found_exception"
_CONFLICT: Final = "version_conflict_engine_exception"


class SearchBusy(RmqioError):
    """The cluster is away, or too busy to take a document now."""

    retriable = True


class SearchTooLarge(RowRefused):
    """The cluster takes no request that is so large."""


class Document(NamedTuple):
    """A document, for its line of a request."""

    id: str | None
    source: dict[str, Any]


def body_of(documents: Sequence[Document], operation: str) -> bytes:
    """Returns the lines of a request. Raises `SerdeError` for a document that is not JSON."""
    lines = []
    for document in documents:
        action = {operation: {} if document.id is None else {"_id": document.id}}
        lines.append(json.dumps(action, ensure_ascii=False))
        if operation == "update":
            lines.append(f'{{"doc":{to_json(document.source)},"doc_as_upsert":true}}')
        elif operation != "delete":
            lines.append(to_json(document.source))
    return "\n".join([*lines, ""]).encode("utf-8", "backslashreplace")


def check_status(status: int, text: str) -> None:
    """Raises for the status of a whole request that is no success."""
    if 200 <= status < 300:
        return
    if status == 413:
        raise SearchTooLarge(f"the request is too large for the cluster: {_short(text)}")
    if status in _BUSY:
        raise SearchBusy(f"status {status}: {_short(text)}")
    raise LocalError(f"the cluster refuses the request with status {status}: {_short(text)}")


def outcome_of(answer: Any, operation: str, count: int) -> Written | None:
    """Returns what an answer says of each document. Raises `LocalError` for an error of the set-up."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != count:
        raise SearchBusy(f"the answer is not one of a bulk request of {count} documents: {_short(json.dumps(answer))}")
    if not answer.get("errors"):
        return None
    refused: dict[int, Exception] = {}
    again: dict[int, Exception] = {}
    for position, item in enumerate(items):
        found = next(iter(item.values()))
        status, error = found.get("status", 0), found.get("error") or {}
        kind, reason = error.get("type", ""), _reason(error)
        if 200 <= status < 300 or (operation == "delete" and status == 404 and kind != _NO_INDEX):
            continue  # nothing was there to delete
        if operation == "create" and status == 409 and kind == _CONFLICT:
            continue  # an earlier try has created it, or another document has its id and stays
        if status in _SET_UP or kind == _NO_INDEX:
            raise LocalError(f"the cluster refuses documents with status {status}: {kind}: {reason}")
        # An update reads the document, and writes it if no other worker has changed it since.
        if status in _BUSY or (operation == "update" and status == 409 and kind == _CONFLICT):
            again[position] = SearchBusy(f"status {status}: {kind}: {reason}")
        else:
            is_perhaps = kind in _PERHAPS_SET_UP or _PERHAPS_SET_UP_REASON.search(reason)
            refused[position] = (PerhapsRefused if is_perhaps else RowRefused)(f"{kind}: {reason}")
    return Written(refused, again) if refused or again else None


def _reason(error: dict[str, Any]) -> str:
    cause = error.get("caused_by") or {}
    return f"{error.get('reason', '')}" + (f": {cause['reason']}" if cause.get("reason") else "")


def _short(text: str) -> str:
    return " ".join(text.split())[:500]
