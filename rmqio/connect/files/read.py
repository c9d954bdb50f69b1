"""`ReadFromFiles`: reads the rows of files, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.transforms.display import DisplayDataItem

from rmqio.connect.files.formats import FileFormat, format_of
from rmqio.errors import LocalError, SerdeError


class ReadFromFiles(beam.PTransform):
    """Reads the rows of files as dicts, and ends. Each file is read by one worker.

    Args:
      pattern: a path, or a pattern such as `data/*.jsonl`, of any file system that Beam knows. No file is an error.
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
            | "Match" >> fileio.MatchFiles(self._pattern, fileio.EmptyMatchTreatment.DISALLOW)
            | "Open" >> fileio.ReadMatches()
            | "Spread" >> beam.Reshuffle()
        )
        return files | "Rows" >> beam.ParDo(_RowsFn(self._format)).with_output_types(dict[str, Any])

    def display_data(self) -> dict[str, Any]:
        return {"pattern": DisplayDataItem(self._pattern), "format": DisplayDataItem(self._format.name)}


class _RowsFn(beam.DoFn):
    def __init__(self, kind: FileFormat) -> None:
        self._kind = kind

    def process(self, file: Any) -> Iterator[dict[str, Any]]:
        with file.open() as opened:
            try:
                yield from self._kind.read(opened)
            except SerdeError as error:
                raise SerdeError(f"{file.metadata.path}: {error}") from error
