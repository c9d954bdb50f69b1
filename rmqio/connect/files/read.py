"""`ReadFromFiles`: reads the rows of files, once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.display import DisplayDataItem

from rmqio.connect.files.compressed import decompressed
from rmqio.connect.files.formats import FileFormat, format_of
from rmqio.connect.files.systems import require_file_system
from rmqio.errors import LocalError, RmqioError, SerdeError

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
