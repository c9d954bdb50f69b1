"""`Enrich`: adds columns of a dimension table to elements, by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from rmqio.enrich.definition import Table
from rmqio.enrich.enrich_fn import EnrichFn, LookUp
from rmqio.enrich.loading import Wanted
from rmqio.enrich.refresh import Schedule
from rmqio.enrich.sources.topic import Topic
from rmqio.enrich.table.rows import Spec, key_fields
from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.security import Security
from rmqio.transforms.parts import ERRORS_TAG, BatchConstraint, HandlesFailures


class Enrich(HandlesFailures):
    """Adds columns of a dimension table to each element.

    Args:
      table: the table, such as `Table.from_parquet("users/*.parquet")`.
      key: the field of the element that is the table's key, or a list of fields. A dict says for each field what the
        table's column is called.
      columns: the columns to add; None: all but the key.
      how: "left": an element without a row stays; "inner": it is left out, and counted.
      on_missing: with "left": "null": the columns are None; "error": the element goes to the errors.
      duplicates: of rows with one key: "error": the table is refused; "first" or "last": that one counts, in the order
        of the source; "all": one result for each row.
      prefix: before the name of each column.
      refresh_s: the time after which the table is loaded again; None: never. A topic goes on being read.
      on_refresh_error: if a load fails that is not the first one: "keep_previous" or "fail".
      max_age_s: look-ups fail if the rows are older; None: never.
      at: for tables with valid_from or valid_to: the field with the time that counts, a datetime or milliseconds
        since 1970; None: the timestamp of the element, which batches do not have.
      batches: elements are batches, such as those of `ReadFromRocketMQ(batches=True)`.
      output_type: a NamedTuple, or another class that takes the fields by name.
      dead_letter_topic, name_server, security, client_factory: as in `MapRecords`.

    Elements: dicts, `beam.Row`s, NamedTuples; `Record`s, `Message`s and bytes, whose bodies are objects of JSON.

    Returns: dicts of dicts and of JSON, `beam.Row`s of others, unless there is an `output_type`.

    Raises: `LocalError` when it is built, and at the start of a worker if the table cannot be loaded; `SerdeError`
    while it runs for an element that cannot be looked up, if nobody takes the errors.
    """

    def __init__(
        self,
        table: Table,
        key: str | Sequence[str] | Mapping[str, str],
        columns: Sequence[str] | None = None,
        *,
        how: str = "left",
        on_missing: str = "null",
        duplicates: str = "error",
        prefix: str = "",
        refresh_s: float | None = 3600.0,
        on_refresh_error: str = "keep_previous",
        max_age_s: float | None = None,
        at: str | None = None,
        batches: bool = False,
        output_type: Any = None,
        dead_letter_topic: str | None = None,
        name_server: str | tuple[str, ...] | list[str] | None = None,
        security: Security | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__(dead_letter_topic, name_server, security, client_factory)
        if not isinstance(table, Table):
            raise LocalError(f"table is {table!r}; make it with Table.from_parquet or another of its functions")
        if how not in ("left", "inner"):
            raise LocalError(f'how is {how!r}; it must be "left" or "inner"')
        if on_missing not in ("null", "error"):
            more = ': to leave elements out, say how="inner"' if on_missing == "drop" else ""
            raise LocalError(f'on_missing is {on_missing!r}; it must be "null" or "error"{more}')
        if how == "inner" and on_missing == "error":
            raise LocalError('how="inner" leaves elements without a row out: on_missing="error" needs how="left"')
        fields = key_fields(key)
        wanted = None if columns is None else tuple([columns] if isinstance(columns, str) else columns)
        spec = Spec(tuple(fields.values()), wanted, duplicates, table.valid_from, table.valid_to)
        if at is not None and not spec.has_times:
            raise LocalError("at needs a table with valid_from or valid_to: other tables have only current rows")
        if batches and spec.has_times and at is None:
            raise LocalError(
                "a batch has one timestamp for all of its elements: pass at=, the field that holds the time"
            )
        schedule = Schedule(refresh_s, max_age_s, on_refresh_error)
        is_loaded_again = refresh_s is not None and not isinstance(table.source, Topic)
        if is_loaded_again and max_age_s is not None and max_age_s < (refresh_s or 0):
            raise LocalError(
                f"max_age_s is {max_age_s} and refresh_s {refresh_s}: rows would be too old before they are loaded "
                "again; give a smaller refresh_s"
            )
        self._look_up = LookUp(
            wanted=Wanted(table, spec),
            schedule=schedule,
            fields=tuple(fields),
            how=how,
            on_missing=on_missing,
            many=duplicates == "all",
            prefix=prefix,
            at=at,
            output_type=output_type,
        )
        self._batches, self._output_type = batches, output_type

    def expand(self, elements: Any) -> Any:
        handled = self.takes_failures
        label = elements.pipeline.transforms_stack[-1].full_label
        kind = Any if self._output_type is None else self._output_type
        hint = BatchConstraint(kind) if self._batches else kind
        looking = beam.ParDo(EnrichFn(self._look_up, label, batches=self._batches, errors_to_output=handled))
        if not handled:
            return elements | "Look up" >> looking.with_output_types(hint)
        outputs = elements | "Look up" >> looking.with_output_types(hint).with_outputs(ERRORS_TAG, main="enriched")
        enriched, failures = outputs["enriched"], outputs[ERRORS_TAG]
        enriched.element_type = hint
        self.take_failures(failures)
        return enriched

    def display_data(self) -> dict[str, Any]:
        look_up = self._look_up
        columns = look_up.wanted.spec.columns
        shown = {
            "table": look_up.wanted.table.source.shown,
            "key": ", ".join(look_up.fields),
            "columns": None if columns is None else ", ".join(columns),
            "how": look_up.how,
            "dead_letter_topic": self._dead_letter_topic,
        }
        return {key: DisplayDataItem(value).drop_if_none() for key, value in shown.items()}
