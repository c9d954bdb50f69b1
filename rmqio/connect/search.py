"""The sink for indices of Elasticsearch and OpenSearch, by the bulk interface that both have."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from rmqio.batches import record_id
from rmqio.connect.rows import size_of, to_json
from rmqio.connect.sink import BatchSink, PerhapsRefused, RowRefused, Verdict, Written
from rmqio.errors import LocalError, RmqioError
from rmqio.hints import did_you_mean
from rmqio.model import Record
from rmqio.security import SecretSource

# The bulk interface of Elasticsearch and OpenSearch: requests, and what their answers mean. It knows no network.

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
        kind, reason = error.get("type", ""), _reason_of_item(error)
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


def _reason_of_item(error: dict[str, Any]) -> str:
    cause = error.get("caused_by") or {}
    return f"{error.get('reason', '')}" + (f": {cause['reason']}" if cause.get("reason") else "")


def _short(text: str) -> str:
    return " ".join(text.split())[:500]


_INDEX: Final = re.compile(r"[^A-Z\s\\/*?\"<>|,#:_+.-][^A-Z\s\\/*?\"<>|,#:]{0,254}")


class SearchOptions(NamedTuple):
    """See `WriteToElasticsearch`."""

    id: str | Callable[[Any], Any] | None
    operation: str
    username: str | None
    password: SecretSource | None
    api_key: SecretSource | None
    ca_file: str | None
    timeout_s: float


class SearchSink(BatchSink):
    """Writes documents by `_bulk`. Each index has batches of its own."""

    def __init__(self, url: str, index: str | Callable[[Any], Any], options: SearchOptions) -> None:
        self._url, self._index, self._options = url.rstrip("/"), index, options
        place = urlsplit(url)
        shown = index if isinstance(index, str) else "of each document"
        self.name = f"index {shown} of {place.scheme}://{place.netloc.rpartition('@')[2]}"
        self._session: Any = None

    def open(self) -> None:
        """See `BatchSink`."""
        import requests

        options = self._options
        session = requests.Session()
        session.trust_env = False  # neither proxies nor ~/.netrc: what is given counts
        session.headers["Content-Type"] = "application/x-ndjson"
        if options.api_key is not None:
            session.headers["Authorization"] = f"ApiKey {options.api_key.get()}"
        elif options.username is not None:
            session.auth = (options.username, "" if options.password is None else options.password.get())
        if options.ca_file is not None:
            if not os.path.exists(options.ca_file):  # requests' error is one of the network, which is tried again
                raise LocalError(f"{self.name}: ca_file: there is no file {options.ca_file}")
            session.verify = options.ca_file
        self._session = session

    def close(self) -> None:
        """See `BatchSink`."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def convert(self, element: Any) -> Any:
        """See `BatchSink`. The index and the document."""
        options = self._options
        index = self._index(element) if callable(self._index) else self._index
        if (problem := problem_of_index(index)) is not None:
            raise RowRefused(problem)
        source = super().convert(element)
        found: Any = None
        if callable(options.id):
            found = options.id(element)
        elif options.id is not None:
            found = source.get(options.id)
        elif isinstance(element, Record):
            found = record_id(element)
        if found is None and (options.id is not None or options.operation in ("update", "delete")):
            name = options.id if isinstance(options.id, str) else "id"
            hint = "" if name in source else did_you_mean(name, map(str, source))
            raise RowRefused(f"{self.name}: the document has no {name}{hint}")
        if found is not None and (isinstance(found, bool) or not isinstance(found, (str, int)) or found == ""):
            raise RowRefused(f"{self.name}: the id {found!r:.60} is neither text nor a number")
        if found is not None and len(str(found).encode("utf-8", "surrogatepass")) > 512:
            raise RowRefused(f"{self.name}: the id {found!r:.60}... has more than 512 bytes")
        return index, Document(None if found is None else str(found), source)

    def destination(self, row: Any) -> Hashable:
        """See `BatchSink`."""
        index: str = row[0]
        return index

    def size(self, row: Any) -> int:
        """See `BatchSink`."""
        return size_of(row[1].source)

    def write(self, rows: Sequence[Any], destination: Any) -> Written | None:
        """See `BatchSink`. No request has an id twice: the cluster could reject the first one, which comes again."""
        sent = 0 if self._options.operation == "create" else -1
        url = f"{self._url}/{quote(destination, safe='')}/_bulk"
        refused: dict[int, Exception] = {}
        again: dict[int, Exception] = {}
        for chains in rounds_of([document.id for _, document in rows], self._options.operation):
            chains = [chain for chain in chains if not self._waits(chain, rows, again)]
            if not chains:
                continue
            documents = [rows[chain[sent]][1] for chain in chains]
            answer = self._post(url, body_of(documents, self._options.operation))
            outcome = outcome_of(answer, self._options.operation, len(documents)) or Written()
            for place, error in outcome.refused.items():
                chain = chains[place]
                refused[chain[sent]] = error
                others = chain[1:] if sent == 0 else chain[:-1]
                again.update((each, SearchBusy("another document of its id was refused")) for each in others)
            for place, error in outcome.again.items():
                again.update((each, error) for each in chains[place])
        return Written(refused, again) if refused or again else None

    @staticmethod
    def _waits(chain: list[int], rows: Sequence[Any], again: dict[int, Exception]) -> bool:
        """Whether an earlier document of the id has to come first. Then this one comes again, too."""
        found = rows[chain[-1]][1].id
        if found is None or all(rows[each][1].id != found for each in again):
            return False
        again.update((each, SearchBusy("an earlier document of its id comes first")) for each in chain)
        return True

    def judge(self, error: Exception) -> Verdict:
        """See `BatchSink`."""
        import requests

        if isinstance(error, (requests.exceptions.SSLError, requests.exceptions.InvalidURL)):
            return Verdict.FAIL
        return Verdict.RETRY if isinstance(error, requests.exceptions.RequestException) else super().judge(error)

    def _post(self, url: str, body: bytes) -> Any:
        import requests

        try:
            answer = self._session.post(url, data=body, timeout=self._options.timeout_s, allow_redirects=False)
        except requests.exceptions.RequestException as error:
            if self.judge(error) is Verdict.RETRY:
                raise SearchBusy(_reason(error)) from error
            raise
        check_status(answer.status_code, answer.text)
        try:
            return answer.json()
        except ValueError as error:
            raise SearchBusy(f"the answer is not JSON: {answer.text[:200]}") from error


def _reason(error: Exception) -> str:
    """Returns why there is no answer, without the names of Python's objects around it."""
    inner = error.args[0] if error.args else error
    return re.sub(r"^HTTPS?Connection(Pool)?\([^)]*\): ", "", str(getattr(inner, "reason", inner))) or "no answer"


def problem_of_index(index: Any) -> str | None:
    """Says why a name cannot be that of an index, as all these servers have it; None: it can."""
    if isinstance(index, str) and _INDEX.fullmatch(index):
        return None
    hint = f"; use {index.lower()}" if isinstance(index, str) and _INDEX.fullmatch(index.lower()) else ""
    rule = 'lower case, without spaces and without \\ / * ? " < > | , # :, and not with _ - + or . at its beginning'
    return f"{index!r} is not the name of an index: {rule}{hint}"


def check_url(url: Any) -> None:
    """Raises `LocalError` for an address that is not one of HTTP."""
    place = urlsplit(url) if isinstance(url, str) else None
    if place is None or place.scheme not in ("http", "https") or not place.hostname:
        raise LocalError("url must be like https://host:9200")
    if place.username or place.password:
        raise LocalError("url holds credentials, which logs would show: give username= and password_env=")


def rounds_of(ids: Sequence[str | None], operation: str) -> list[list[list[int]]]:
    """Returns requests, one after the other, in which each id occurs once.

    A request is a list of chains: positions with one id, of which the last one is sent. Its document replaces those of
    the others. With "create", the first one is sent, and the others are as if they came later: it stays. Updates do not
    replace each other, so each is alone, and in a request after that of the one before.
    """
    first: list[list[int]] = []
    more: list[list[list[int]]] = []
    chains: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for position, found in enumerate(ids):
        if found is None:
            first.append([position])
        elif operation == "update":
            place = counts.get(found, 0)
            counts[found] = place + 1
            if place == len(more):
                more.append([])
            more[place].append([position])
        elif found in chains:
            chains[found].append(position)
        else:
            chains[found] = [position]
            first.append(chains[found])
    return [each for each in (first, *more) if each]
