"""`SqlTransform`: a query over PCollections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import apache_beam as beam
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.transforms.window import GlobalWindows

from rmqio.errors import LocalError
from rmqio.interfaces import ClientFactory
from rmqio.model import Record
from rmqio.security import Security
from rmqio.sql.catalog.settings import option_of
from rmqio.sql.errors import Refusal, SqlError, nearest
from rmqio.sql.planning.plan import Calc, LookupJoin, Relation, Scan, Union, Windowed
from rmqio.sql.planning.relations import Expand
from rmqio.sql.runtime.scans import Connection
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.syntax.parser import parse
from rmqio.sql.transform.elements import BadRow, SqlResult, ToElements
from rmqio.sql.transform.inputs import ElementsInput, MessagesInput, QueryScript, element_time
from rmqio.sql.transform.row_types import require_names
from rmqio.sql.values import in_zone
from rmqio.start import StartFrom, StopAt
from rmqio.transforms.parts import BatchConstraint

PCOLLECTION: Final = "PCOLLECTION"
"""The name of a single input, as in Beam's own SqlTransform."""
_ON_ERROR: Final = ("fail", "skip", "output")
_ENDS: Final = "its rows change, and an output of rows cannot take them back: a window, or inputs that end"

Rowtime = str | element_time
Input = ElementsInput | MessagesInput


class SqlTransform(beam.PTransform):
    """The rows of a query over the PCollections that are its input, in SQL as `rmqio sql` runs it.

    The input is one PCollection, whose name in the query is `PCOLLECTION`, or the only one of `tables`; or a dict of
    them by name; or the pipeline, if the query reads tables of its own. Elements have a schema: `beam.Row`, a
    NamedTuple, a dataclass. The output is a PCollection of a NamedTuple.

    Args:
      text: a query. CREATE TABLE, CREATE VIEW, CREATE FUNCTION and SET can stand before it.
      tables: for inputs of messages, `ReadFromRocketMQ(batches=True)` or records, by name, the CREATE TABLE, or its
        columns in parentheses; None for an input of rows. A text is the name of the single input.
      functions: by name, functions of Python: for CREATE FUNCTION, as `module.name` or the function itself.
      settings: what SET would set; a number or a truth value is taken as text.
      rowtime: the column that is the time of rows, for windows: its name, or `element_time(name)`, which adds a column
        with the time of the elements. For several inputs, a dict by name.
      on_error: what becomes of a row that cannot be computed: `fail` (default) fails the pipeline, `skip` counts it
        (`rows_failed`) and logs it, `output` makes the result a `SqlResult` of `rows` and `errors`.
      name_server, security, start, stop, client_factory: for tables of the text, as of `ReadFromRocketMQ`.

    Raises `SqlError` if the text is not valid; what depends on the inputs is checked when the transform is applied.
    """

    def __init__(
        self,
        text: str,
        tables: Mapping[str, str | None] | str | None = None,
        functions: Mapping[str, str | Callable[..., Any]] | None = None,
        settings: Mapping[str, str | int | float] | None = None,
        *,
        rowtime: Mapping[str, Rowtime] | Rowtime | None = None,
        on_error: str = "fail",
        name_server: str | None = None,
        security: Security | None = None,
        start: StartFrom | None = None,
        stop: StopAt | None = None,
        client_factory: ClientFactory | None = None,
    ) -> None:
        super().__init__()
        if on_error not in _ON_ERROR:
            raise LocalError(
                f"on_error is {on_error!r}; it can be {', '.join(_ON_ERROR)}{nearest(on_error, _ON_ERROR)}"
            )
        if not parse(text):
            raise SqlError("the text has no statement: it ends with SELECT ...")
        self._text = text
        self._tables: dict[str, str | None] = {tables: None} if isinstance(tables, str) else dict(tables or {})
        self._functions, self._settings = dict(functions or {}), dict(settings or {})
        self._rowtime, self._on_error = rowtime, on_error
        self._connection = Connection(name_server, security, start, stop, client_factory)

    def expand(self, pvalueish: Any) -> Any:
        inputs = self._inputs(pvalueish)
        pipeline = pvalueish.pipeline if isinstance(pvalueish, (PBegin, PCollection)) else None
        pipeline = pipeline or next(iter(inputs.values())).pcoll.pipeline
        script = self._script(inputs)
        relation = script.select(self._text)
        try:
            require_names(relation.fields)
        except Refusal as refusal:
            raise script.error(refusal.message, refusal.span) from None
        _require_global_windows(relation, inputs)
        by_table = {id(each.table): each for each in inputs.values()}
        translation = Translation(pipeline, self._connection, inputs=by_table, errors=script.error)
        target = ToElements(relation.fields)
        with in_zone(script.settings.zone):  # fragments are of the session that they are made in
            rows = translation.rows(relation, target, _ENDS)
        rows.element_type = target.row_type
        if self._on_error != "output":
            return rows
        errors = [each for source in inputs.values() for each in source.errors]
        found = errors or [pipeline | "No errors" >> beam.Create([])]
        bad = found | "Errors" >> beam.Flatten()
        bad.element_type = BadRow
        return SqlResult(rows, bad)

    def _script(self, inputs: Mapping[str, Input]) -> QueryScript:
        """A script that knows the inputs, settings and functions."""
        script = QueryScript()
        script.catalog.tables.update({name: each.table for name, each in inputs.items()})
        for key, value in self._settings.items():
            try:
                script.settings = script.settings.with_option(option_of(key, value))
            except Refusal as refusal:
                raise SqlError(f"settings: {refusal.message}") from None
        for name, function in self._functions.items():
            script.run(f"CREATE FUNCTION `{name}` AS '{_path_of(name, function)}' LANGUAGE PYTHON", "functions")
        return script

    def _inputs(self, pvalueish: Any) -> dict[str, Input]:
        if isinstance(pvalueish, PBegin):
            given: dict[str, Any] = {}
        elif isinstance(pvalueish, PCollection):
            name = next(iter(self._tables)) if len(self._tables) == 1 else PCOLLECTION
            given = {name: pvalueish}
        elif isinstance(pvalueish, Mapping) and pvalueish:
            given = dict(pvalueish)
        else:
            raise LocalError(
                "the input of SqlTransform is a PCollection, a dict of PCollections by name, or the pipeline, and not "
                f"{type(pvalueish).__name__}"
            )
        for name in self._tables:
            if name not in given:
                raise LocalError(
                    f"tables names {name!r}, which is not an input{nearest(name, given) or _listed(given)}"
                )
        rowtime = self._rowtime
        if rowtime is not None and not isinstance(rowtime, Mapping):
            if len(given) != 1:
                raise LocalError("for several inputs, rowtime must be a dict by their names")
            rowtime = dict.fromkeys(given, rowtime)
        for name in rowtime or {}:
            if name not in given:
                raise LocalError(
                    f"rowtime names {name!r}, which is not an input{nearest(name, given) or _listed(given)}"
                )
        return {name: self._input(name, pcoll, (rowtime or {}).get(name)) for name, pcoll in given.items()}

    def _input(self, name: str, pcoll: Any, rowtime: Rowtime | None) -> Input:
        ddl = self._tables.get(name)
        kind = pcoll.element_type
        if ddl is None and (kind is Record or isinstance(kind, BatchConstraint)):
            raise SqlError(f"{name} has messages: tables={{{name!r}: 'CREATE TABLE ...'}} says how they are decoded")
        if ddl is not None and not (kind is Record or isinstance(kind, BatchConstraint)):
            raise SqlError(f"{name} has rows, which need no CREATE TABLE: that is for ReadFromRocketMQ(batches=True)")
        if ddl is not None and rowtime is not None:
            raise SqlError(
                f"{name} has a CREATE TABLE, so it cannot have a rowtime: declare its time with WATERMARK FOR instead"
            )
        try:
            if ddl is not None:
                return MessagesInput.of(name, pcoll, ddl, self._on_error)
            return ElementsInput.of(name, pcoll, rowtime, self._on_error)
        except Refusal as refusal:
            raise SqlError(refusal.message) from None


def _listed(names: Mapping[str, Any]) -> str:
    return f"; there are {', '.join(names)}" if names else "; there are none"


def _path_of(name: str, function: str | Callable[..., Any]) -> str:
    if isinstance(function, str):
        return function
    path = f"{function.__module__}.{function.__qualname__}"
    if "<" in path or function.__module__ == "__main__":
        raise LocalError(f"the function {name} must be one that workers can import, at the top of a module, not {path}")
    return path


def _require_global_windows(relation: Relation, inputs: Mapping[str, Input]) -> None:
    """Raises `SqlError` for an input with windows of Beam, if rows of several elements, or of other windows, meet."""
    tables = set(_tables(relation))
    windows = {name: each.pcoll.windowing.windowfn for name, each in inputs.items() if name in tables}
    is_by_row = _is_row_by_row(relation)
    kinds = [*windows.values(), *([] if len(windows) == len(tables) else [GlobalWindows()])]
    if is_by_row and all(each == kinds[0] for each in kinds):
        return
    for name, window_fn in windows.items():
        if not isinstance(window_fn, GlobalWindows):
            reason = "other inputs are not" if is_by_row else "the query has its own"
            raise SqlError(
                f"{name} is in windows of Beam ({type(window_fn).__name__}), and {reason}: put "
                "beam.WindowInto(beam.window.GlobalWindows()) before it"
            )


def _is_row_by_row(relation: Relation) -> bool:
    """Whether each row comes from one element, in whose windows it stays."""
    is_one = isinstance(relation, (Scan, Calc, Expand, LookupJoin, Union, Windowed))
    return is_one and all(map(_is_row_by_row, relation.inputs()))


def _tables(relation: Relation) -> list[str]:
    own = [relation.table.name] if isinstance(relation, Scan) else []
    return own + [name for each in relation.inputs() for name in _tables(each)]
