"""`ReadFromFiles`: reads the rows of files, once."""

from __future__ import annotations

import bz2
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.display import DisplayDataItem

from rmqio.connect.files.formats import FileFormat, format_of, require_file_system
from rmqio.errors import LocalError, RmqioError, SerdeError

# Compressed files, all of them or an error. Beam takes the rows of a truncated one as all that there are.

_CHUNK: Final = 1 << 16
_GZIP: Final = 16 + zlib.MAX_WBITS
"""The argument of zlib for a header of gzip."""


def decompressed(file: Any, path: str) -> io.BufferedIOBase:
    """Returns the content of an open file, by the end of its name. Its `read` raises `SerdeError` for broken data."""
    kind = CompressionTypes.detect_compression_type(path)
    if kind == CompressionTypes.UNCOMPRESSED:
        return file if isinstance(file, io.BufferedIOBase) else io.BufferedReader(_Plain(file))
    return io.BufferedReader(_Decompressed(file, kind), _CHUNK)


class _Plain(io.RawIOBase):
    """A file that can do no more than `read`."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        found: bytes = self._file.read(size)
        return found


class _Decompressed(_Plain):
    """Several files behind each other are one, as `gzip` and `zstd` have it."""

    def __init__(self, file: Any, kind: str) -> None:
        super().__init__(file)
        self._new, self._errors = _decompressor(kind)
        self._pads = kind == CompressionTypes.GZIP
        self._decompressor = self._new()
        self._left = io.BytesIO()

    def _next(self, size: int) -> bytes:
        while not (found := self._left.read(size)):
            if self._decompressor.eof:
                data = self._behind()
                if not data:
                    return b""
                self._decompressor = self._new()
            else:
                data = self._file.read(_CHUNK)
                if not data:
                    raise SerdeError(
                        "its compressed data ends too early: the file is truncated, or still being written"
                    )
            try:
                self._left = io.BytesIO(self._decompressor.decompress(data))
            except self._errors as error:
                raise SerdeError(f"its compressed data is broken: {error}") from error
        return found

    def _behind(self) -> bytes:
        """The bytes behind the end of a file. After gzip, zeros fill up blocks."""
        data: bytes = self._decompressor.unused_data
        while True:
            data = data.lstrip(b"\0") if self._pads else data
            if data:
                return data
            data = self._file.read(_CHUNK)
            if not data:
                return b""


def _decompressor(kind: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """Returns a function that makes decompressors, and the errors of broken data."""
    if kind == CompressionTypes.GZIP:
        return lambda: zlib.decompressobj(_GZIP), (zlib.error,)
    if kind == CompressionTypes.DEFLATE:
        return zlib.decompressobj, (zlib.error,)
    if kind == CompressionTypes.BZIP2:
        return bz2.BZ2Decompressor, (OSError, ValueError)
    if kind == CompressionTypes.LZMA:
        return lzma.LZMADecompressor, (lzma.LZMAError,)
    try:
        import zstandard
    except ImportError as error:  # Beam requires it
        raise LocalError("files that end in .zst need zstandard: pip install zstandard") from error
    # As large a window as Beam takes: `zstd --long` writes such files.
    return lambda: zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj(), (zstandard.ZstdError,)


_WILD: Final = re.compile(r"[*?\[]")


class ReadFromFiles(beam.PTransform):
    """Reads the rows of files as dicts, and ends. Each file is read by one worker.

    Args:
      pattern: a path, or a pattern such as `data/*.jsonl`, of any file system that Beam knows. No file is an error.
        As in a shell, `*` matches no name that begins with a dot: files that are being written have such names.
      format: "jsonl", "csv", "parquet" or "avro"; None: by the name. A name that ends with .gz, .bz2 or .zst is
        decompressed.

    CSV has a header, and its values are text; an empty value is None. A line that is not a row fails the pipeline, with
    the name of the file and its number.
    """

    def __init__(self, pattern: str, format: str | None = None) -> None:
        super().__init__()
        if not isinstance(pattern, str) or not pattern:
            raise LocalError(f"pattern is {pattern!r}; it must be a path")
        self._pattern = pattern
        self._format = FileFormat(format_of(pattern, format))

    def expand(self, pipeline: Any) -> Any:
        files = (
            pipeline
            | "Pattern" >> beam.Create([self._pattern])
            | "Match" >> beam.ParDo(_MatchFn())
            | "Open" >> fileio.ReadMatches()
            | "Spread" >> beam.Reshuffle()
        )
        return files | "Rows" >> beam.ParDo(_RowsFn(self._format)).with_output_types(dict[str, Any])

    def display_data(self) -> dict[str, Any]:
        return {"pattern": DisplayDataItem(self._pattern), "format": DisplayDataItem(self._format.name)}


class _MatchFn(beam.DoFn):
    """Finds the files of a pattern."""

    def process(self, pattern: str) -> Iterator[FileMetadata]:
        require_file_system(pattern)
        try:
            (found,) = FileSystems.match([pattern])
        except BeamIOError as error:
            reasons = "; ".join(str(each) for each in (error.exception_details or {}).values()) or str(error)
            raise RmqioError(f"cannot look for {pattern}: {reasons}") from error
        # As in a shell. `WriteToFiles` and others give such names to files that are not complete.
        takes_all = _name_of(pattern).startswith((".", "[")) or not _WILD.search(pattern)
        files = [each for each in found.metadata_list if takes_all or not _name_of(each.path).startswith(".")]
        if not files:
            hidden = "; names that begin with a dot do not count" if found.metadata_list else ""
            raise LocalError(f"no file matches {pattern}{hidden}")
        yield from files


def _name_of(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


class _RowsFn(beam.DoFn):
    def __init__(self, kind: FileFormat) -> None:
        self._kind = kind

    def process(self, file: Any) -> Iterator[dict[str, Any]]:
        path = file.metadata.path
        with file.open(compression_type=CompressionTypes.UNCOMPRESSED) as opened:
            try:
                yield from self._kind.read(decompressed(opened, path))
            except SerdeError as error:
                raise SerdeError(f"{path}: {error}") from error
