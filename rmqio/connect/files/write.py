"""`WriteToFiles`: writes rows to files, a folder for each window."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import PCollection
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.display import DisplayDataItem
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints import Tuple

from rmqio import telemetry
from rmqio.connect.files.formats import FileFormat, require_file_system
from rmqio.connect.rows import to_row
from rmqio.connect.sink import RowRefused
from rmqio.connect.transform import ADVICE, Refusals, failure_of, refusal, warn_refused
from rmqio.errors import LocalError, RmqioError, SerdeError
from rmqio.interfaces import ClientFactory
from rmqio.security import Security
from rmqio.transforms import ReadFailure
from rmqio.transforms.parts import Count, HandlesFailures, observe_process

# Files of earlier attempts and writes: those that new ones replace, and those that would double their rows.


class FileName(NamedTuple):
    """The name of a file of a window: it depends on shard and firing alone."""

    shard: int
    shards: int
    firing: int
    """0, or the number of the firing for rows that came later."""
    suffix: str

    @property
    def stem(self) -> str:
        return f"part-{self.shard:05d}-of-{self.shards:05d}"

    def __str__(self) -> str:
        return f"{self.stem}-late{self.firing}{self.suffix}" if self.firing else f"{self.stem}{self.suffix}"

    def is_residue(self, name: str) -> bool:
        """Whether a file of the folder is left from an attempt that this file replaces.

        These are parts of files that no attempt has finished, and all of later firings: an attempt that wrote them had
        come further, and its rows come again.
        """
        pattern = rf"(\.?){self.stem}(?:-late(\d+))?{re.escape(self.suffix)}(\.[0-9a-f]{{32}})?"
        found = re.fullmatch(pattern, name)
        if found is None or bool(found[1]) is not bool(found[3]):
            return False
        firing = int(found[2] or 0)
        return firing > self.firing or (firing == self.firing and bool(found[3]))


def require_same_shards(folder: str, shards: int, suffix: str) -> None:
    """Raises `LocalError` if a folder has files of a write with another number of shards: none would replace them."""
    own = f"of-{shards:05d}{suffix}"
    pattern = re.compile(rf"part-\d{{5}}-of-(\d{{5}})(?:-late\d+)?{re.escape(suffix)}")
    for path in sorted(_matching(folder, [f"part-*{suffix}"])):
        name = os.path.basename(path)
        if (found := pattern.fullmatch(name)) and int(found[1]) != shards:
            raise LocalError(
                f"{folder} has {name}, of a write with shards={int(found[1])}: files that end in {own} would not "
                f"replace it, and its rows would be there twice. Give shards={int(found[1])}, remove the old files, or "
                "write into another folder"
            )


def remove_residues(folder: str, name: FileName) -> None:
    """Removes them from a folder. Call it when the file is there."""
    for path in list(_files(folder, name)):
        if name.is_residue(os.path.basename(path)):
            remove(path)


def remove(path: str) -> None:
    """Removes a file, if it is there."""
    if FileSystems.get_scheme(path) is None:  # Beam would take the name for a pattern
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        return
    try:
        FileSystems.delete([path])
    except OSError:  # Beam's errors are some, too
        if FileSystems.exists(path):
            raise


def _files(folder: str, name: FileName) -> Iterator[str]:
    return _matching(folder, [f"{name.stem}-late*", f".{name.stem}*"])


def _matching(folder: str, patterns: Iterable[str]) -> Iterator[str]:
    """The files of a folder; on other file systems than the local one, only those that match a pattern."""
    if FileSystems.get_scheme(folder) is None:  # Beam would look through all folders below
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield from (FileSystems.join(folder, each) for each in os.listdir(folder))
        return
    escaped = re.sub(r"([*?\[])", r"[\1]", folder)
    for result in FileSystems.match([FileSystems.join(escaped, each) for each in patterns]):
        yield from (each.path for each in result.metadata_list)


# The shard of a row, by the row alone, in each process: a row that comes again goes to the same file.


def shard_of(row: Mapping[Any, Any], shards: int) -> int:
    """Returns a number below `shards`. Neither the order of fields nor that of sets counts."""
    if shards == 1:
        return 0
    try:
        text = _text(row)
    except (ValueError, RecursionError):  # it contains itself, or is too deep: no format takes it
        return 0
    return zlib.crc32(text.encode()) % shards


def _text(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=_plain)
    except TypeError:  # keys that are not text, or cannot be sorted
        return json.dumps(_plain_keys(value), sort_keys=True, default=_plain)


def _plain_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_text(key): _plain_keys(each) for key, each in value.items()}
    return [_plain_keys(each) for each in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    """Returns what JSON can write. `repr` is not used where it can depend on the process: on hashes and addresses."""
    if isinstance(value, Set):
        return sorted(map(_text, value))
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if hasattr(value, "tolist"):  # NumPy's
        return value.tolist()
    try:
        return to_row(value)
    except SerdeError:
        known = type(value).__module__ in ("datetime", "decimal", "uuid", "fractions", "zoneinfo", "ipaddress")
        return repr(value) if known else type(value).__qualname__


_FAILED = "failed"
_LABELS = ("files",)
"""The labels of the metrics."""


class WriteToFilesResult(NamedTuple):
    """The outputs of `WriteToFiles`."""

    files: PCollection[str]
    """The name of each file, once it is whole."""
    failed: PCollection[ReadFailure] | None
    """Elements that are not rows, and rows that do not fit the format. None: they fail the pipeline."""


class WriteToFiles(HandlesFailures):
    """Writes the rows of each window to files: `FOLDER/window=START-END/part-00000-of-00001.jsonl`, or without the
    folder in between in the global window.

    A window is written when it fires. Its file is written under another name first, and renamed when it is whole. Its
    name depends on window, shard and firing alone, and the shard of a row on the row alone, so a repeated bundle
    replaces it: no row is lost or doubled. Files that a killed attempt has left are removed when its work is done
    again. Files of a write with another number of shards are an error, since they would stay. Late rows go to a file of
    their own, `...-late1.jsonl`. A stream needs windows, and they must not accumulate.

    Args:
      folder: of any file system that Beam knows.
      format: "jsonl", "csv", "parquet" or "avro".
      columns: of CSV and Parquet, in order; None: those of the rows. Others refuse the row.
      schema: of Avro, as a dict or the path of a file; of Parquet, a `pyarrow.Schema`, or None: what the rows are.
      shards: files of a window, which are written in parallel. Equal rows go to the same one.
      on_failure, dead_letter_topic, name_server, security, client_factory: as in `WriteToSink`.

    Elements: see `WriteToSink`.
    """

    advice = ADVICE
    """See `WriteToSink.advice`."""

    def __init__(
        self,
        folder: str,
        format: str,
        *,
        columns: Iterable[str] | None = None,
        schema: Any = None,
        shards: int = 1,
        on_failure: str = "fail",
        dead_letter_topic: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(dead_letter_topic, name_server, security, client_factory)
        if not isinstance(folder, str) or not folder:
            raise LocalError(f"folder is {folder!r}; it must be a path")
        if not isinstance(shards, int) or not 1 <= shards <= 10_000:
            raise LocalError(f"shards is {shards!r}; it must be from 1 to 10,000")
        if on_failure not in ("fail", "output"):
            raise LocalError(f'on_failure is {on_failure!r}; it must be "fail" or "output"')
        self._folder, self._shards, self._on_failure = folder, shards, on_failure
        self._format = FileFormat(format, None if columns is None else tuple(columns), schema)
        if self._format.name == "avro" and schema is None:
            raise LocalError("Avro files need a schema: give schema=")

    def expand(self, elements: Any) -> WriteToFilesResult:
        handled = self._on_failure == "output" or self.takes_failures
        advice = None if handled else self.advice
        to_rows = beam.ParDo(_ToRowsFn(self._folder, self._shards, advice))
        made = elements | "To rows" >> to_rows.with_outputs(_FAILED, main="rows")
        rows, no_rows = made["rows"], made[_FAILED]
        rows.element_type = Tuple[int, dict[str, Any]]
        writing = beam.ParDo(_WriteFileFn(self._folder, self._format, self._shards, advice))
        gathered = rows | "Gather" >> beam.GroupByKey()
        written = gathered | "Write files" >> writing.with_outputs(_FAILED, main="files")
        files, refused = written["files"], written[_FAILED]
        files.element_type = str
        if not handled:
            return WriteToFilesResult(files, None)
        no_rows.element_type = refused.element_type = ReadFailure
        failed = (no_rows, refused) | "Failures" >> beam.Flatten()
        self.take_failures(failed)
        return WriteToFilesResult(files, failed)

    def display_data(self) -> dict[str, Any]:
        shown = {"folder": self._folder, "format": self._format.name, "shards": self._shards}
        return {key: DisplayDataItem(value) for key, value in shown.items()}


class _ToRowsFn(beam.DoFn):
    """`advice`: the end of the error of an element that is no row; None: it goes to the output `failed`."""

    def __init__(self, folder: str, shards: int, advice: str | None) -> None:
        self._name, self._shards, self._advice = f"folder {folder}", shards, advice
        self._failures = Count("row_failures")

    def setup(self) -> None:
        _observe()
        self._refusals = Refusals(self._name)

    def start_bundle(self) -> None:
        self._refused: list[Exception] = []

    def process(self, element: Any) -> Iterator[Any]:
        try:
            row = to_row(element)
        except Exception as error:  # of an element's own class
            self._failures.add(1, _LABELS)
            failure = failure_of(element, None, error)
            if self._advice is not None:
                raise RowRefused(refusal(self._name, 1, failure, error, self._advice)) from error
            self._refused.append(error)
            yield TaggedOutput(_FAILED, failure)
            return
        yield shard_of(row, self._shards), row

    def finish_bundle(self) -> None:
        if self._refused:
            self._refusals.warn(None, len(self._refused), self._refused[0])


class _WriteFileFn(beam.DoFn):
    """`advice`: the end of the error of a row that does not fit; None: such rows go to the output `failed`."""

    def __init__(self, folder: str, kind: FileFormat, shards: int, advice: str | None) -> None:
        self._folder, self._kind, self._shards, self._advice = folder, kind, shards, advice
        self._written, self._failures = Count("rows_written"), Count("row_failures")

    def setup(self) -> None:
        _observe()  # can run in another process than what is before the shuffle

    def process(
        self,
        element: tuple[int, Iterable[dict[str, Any]]],
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[Any]:
        shard, rows = element
        folder = self._folder
        if not isinstance(window, GlobalWindow):
            folder = FileSystems.join(folder, f"window={self._text(window.start)}-{self._text(window.end)}")
        name = FileName(shard, self._shards, max(0, pane.index), self._kind.suffix)
        final, part = FileSystems.join(folder, str(name)), FileSystems.join(folder, f".{name}.{uuid.uuid4().hex}")
        require_file_system(folder)
        if not FileSystems.exists(folder):
            _create_folder(folder)
        if not name.firing:  # a stream that goes on with another number has late rows of windows that it has written
            require_same_shards(folder, self._shards, self._kind.suffix)
        try:
            # Beam would compress by the suffix, and this one is none.
            with FileSystems.create(part) as file:
                refused = self._kind.write(rows, file)
            if refused and self._advice is not None:
                (row, error), count = refused[0], len(refused)
                raise RowRefused(
                    f"{final}: {'1 row does' if count == 1 else f'{count} rows do'} not fit; the first, {row!r:.200}: "
                    f"{error}; to continue without such rows, {self._advice}"
                ) from error
            FileSystems.rename([part], [final])
            remove_residues(folder, name)
        except BaseException as failure:
            remove(part)
            if isinstance(failure, OSError):  # as if the disk is full; Beam's errors are some, too
                raise RmqioError(f"{final} cannot be written: {failure.strerror or failure}") from failure
            raise
        self._written.add(sum(1 for _ in rows) - len(refused), _LABELS)
        for row, error in refused:
            yield TaggedOutput(_FAILED, failure_of(row, None, error))
        if refused:
            self._failures.add(len(refused), _LABELS)
            warn_refused(f"file {final}", None, len(refused), refused[0][1])
        yield final

    def _text(self, time: Any) -> str:
        try:
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=int(time.micros))
        except OverflowError as error:  # Beam's earliest time, which rows have that were given none
            raise LocalError(
                f"{self._folder}: rows without a time are in a window. Give them one before WindowInto, with "
                "beam.window.TimestampedValue"
            ) from error
        return moment.strftime("%Y%m%dT%H%M%S") + (f".{moment.microsecond:06d}" if moment.microsecond else "") + "Z"


def _observe() -> None:
    observe_process()
    telemetry.record("rows_written", _LABELS, 0)  # failures begin at zero


def _create_folder(folder: str) -> None:
    try:
        FileSystems.mkdirs(folder)
    except OSError as error:  # another worker was first, or a file has the name
        if not FileSystems.exists(folder):
            raise RmqioError(f"the folder {folder} cannot be created: {error}") from error
