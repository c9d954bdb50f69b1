"""A fragment: all that happens to rows between two shuffles, as one function over a batch.

The description (`description`) travels to the workers; `compiled` makes the function there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from decimal import localcontext
from functools import partial
from typing import Any, Final

from rmqio.errors import SerdeError
from rmqio.internal_errors import internal_error
from rmqio.model import Record
from rmqio.sql import expressions
from rmqio.sql.casts import key_text_of
from rmqio.sql.catalog.tables import Column, Table
from rmqio.sql.compile.aggregation import no_time, ones_of, require_time, to_groups, windowed
from rmqio.sql.compile.code import is_null, skip_unless, value
from rmqio.sql.compile.description import (
    Fragment,
    FromRows,
    FromTable,
    Generate,
    Mapped,
    OtherSource,
    OtherTarget,
    Step,
    Target,
    ToGroups,
    ToKeys,
    ToRanks,
    ToRows,
    ToTable,
    WindowStep,
)
from rmqio.sql.compile.emitter import Columns, Emitter, Places, names_of
from rmqio.sql.compile.look_ups import LookUp, begun, looked_up, variant_of
from rmqio.sql.expressions import Constant, Expr, InputRef, transform
from rmqio.sql.planning.identity import id_position
from rmqio.sql.planning.plan import Field, window_fields
from rmqio.sql.planning.relations import ELEMENT, ENTRY, ROW, Shape
from rmqio.sql.rows import has_floats, key_bytes, null_key, pack, with_distinct_nans
from rmqio.sql.syntax.nodes import deep_trees
from rmqio.sql.types import APPROXIMATE, TIMESTAMPS, SqlType, has_required_parts
from rmqio.sql.user.definition import FunctionError
from rmqio.sql.values import DECIMALS, UTC, ValueFailure, in_years, in_zone, last_instant_in, well_formed

# Fragments of statements in which a value that fails is NULL: there, NULL can be where types are NOT NULL.


def nullable(given: Fragment) -> Fragment:
    """Returns the fragment for rows that have NULL where their types are NOT NULL, if its statement has such rows."""
    if not given.statement.has_nulls:
        return given
    target = given.target
    if isinstance(target, ToGroups):
        target = replace(target, fields=_nullable_fields(target.fields))
    return replace(given, steps=tuple(map(_nullable_step, given.steps)), target=target)


def _nullable_step(step: Step) -> Step:
    condition = None if step.condition is None else transform(step.condition, _nullable)
    projections = tuple(transform(each, _nullable) for each in step.projections)
    found = replace(step, condition=condition, projections=projections)
    if isinstance(found, WindowStep):
        return replace(found, fields=_nullable_fields(found.fields))
    if isinstance(found, Generate):
        return replace(found, rows=transform(found.rows, _nullable))
    if isinstance(found, LookUp):
        keys = tuple(transform(each, _nullable) for each in found.keys)
        residual = None if found.residual is None else transform(found.residual, _nullable)
        return replace(found, fields=_nullable_fields(found.fields), keys=keys, residual=residual)
    return found


def _nullable(expression: Expr) -> Expr:
    return expression if isinstance(expression, Constant) else replace(expression, type=expression.type.nullable())


def _nullable_fields(fields: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(each._replace(type=each.type.nullable()) for each in fields)


# Rows that become several: a loop over what a row generates, around all that happens to it from there on.


def emit_expanded(
    given: Expr, shape: Shape, types: Sequence[SqlType], columns: list[str], out: Emitter, loops: ExitStack
) -> list[str]:
    """Begins the loop over a list. Returns the names of all columns in it.

    Args:
      types: of the columns that are added.
      columns: the names of the others.
    """
    rows = value(given, out)
    names = [out.name("g") for _ in types]
    parts = names[:-1] if shape.has_ordinality else names
    pattern, null = parts[0], "None"
    items = f"{rows}.items()" if shape.kind == ENTRY else rows
    element = out.name("g")
    if shape.kind == ROW:
        pattern = element
    elif shape.kind != ELEMENT:
        pattern, null = f"({', '.join(parts)},)", f"({'None, ' * len(parts)})"
    if shape.has_ordinality:
        pattern, null, items = f"{names[-1]}, {pattern}", f"(None, {null})", f"enumerate({items}, 1)"
    if shape.is_outer:
        items = f"({items} if {rows} else ({null},))"
    elif given.type.is_nullable:
        items = f"({items} if {rows} else ())"
    loops.enter_context(out.block(f"for {pattern} in {items}:"))
    if shape.kind == ROW:
        nulls = f"({'None, ' * len(parts)})"
        out.line(f"{', '.join(parts)}, = {nulls} if {element} is None else {element}")
    for position, (name, kind) in enumerate(zip(names, types, strict=True)):
        out.remember(InputRef(kind, len(columns) + position), name)
    return [*columns, *names]


def compiled(fragment: Fragment) -> Callable[..., Mapped]:
    """Returns the function of a fragment: from a batch to what it makes of it.

    With the target `ToGroups` it takes a dict as a second argument, into which it adds instead of returning groups.
    """
    with in_zone(fragment.zone):
        return within(fragment.zone, _compiled(fragment))


def within(zone: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that runs in a time zone of the session."""
    if zone == UTC:
        return run

    def zoned(*arguments: Any) -> Any:
        with in_zone(zone):
            return run(*arguments)

    return zoned


def _compiled(fragment: Fragment) -> Callable[..., Mapped]:
    out = Emitter()
    fragment = nullable(fragment)
    makes_nulls = fragment.statement.makes_nulls
    out.constants.update(
        {"ValueFailure": ValueFailure, "Mapped": Mapped, "localcontext": localcontext, "DECIMALS": DECIMALS}
    )
    is_grouped = isinstance(fragment.target, ToGroups)
    with out.block("def fragment(batch, groups=None):"):
        out.line("values, positions, failed = [], [], {}")
        out.line("add, place = values.append, positions.append")
        if makes_nulls:
            out.nulls = "nulls"
            out.line("nulls = []")
        if is_grouped:
            out.line("is_own = groups is None")
            out.line("if is_own: groups = {}")
        begun(fragment.steps, out)
        with out.block("with localcontext(DECIMALS):"):  # Python's own context has 28 digits
            with out.block("for position, record in enumerate(batch):"):
                with out.block("try:"), deep_trees():
                    emit_row(fragment, source_names(fragment, out), out)
                emit_failures(fragment, out)
        if is_grouped:
            out.line("if is_own: values = list(groups.items())")
        out.line(f"return Mapped(values, positions, failed{', nulls' if makes_nulls else ''})")
    return out.function("fragment")  # type: ignore[no-any-return]


def emit_row(given: Fragment, columns: list[str], out: Emitter, bind: str = "") -> None:
    """Adds all that happens to a row after it is loaded.

    Args:
      bind: a line that comes before the results are added.
    """
    target = given.target
    out.places.columns, out.places.statement = source_columns(given), given.statement.name
    out.constants["failure"] = partial(_failure, out.places)
    collects = isinstance(target, ToGroups) and _is_generating(given)
    if _is_generating(given):
        out.line("made = []")
    met: list[str] = []
    with ExitStack() as loops:
        columns = _steps(given.steps, columns, out, loops, met)
        if isinstance(target, ToGroups) and collects:  # no row of it is in a group before all of them are computed
            require_time(target, columns, out)
            ones = ones_of(target, columns, given.statement.on_error, out)
            columns = [*columns, *filter(None, ones)]
            out.line(f"made.append(({', '.join(columns)}{',' * bool(columns)}))")
        else:
            if bind:
                out.line(bind)
            if given.statement.has_nulls:
                _require_values(target, columns, out)
            if isinstance(target, ToGroups):
                require_time(target, columns, out)
                to_groups(target, columns, ones_of(target, columns, given.statement.on_error, out), out)
            else:
                added = f"(variant_of(({', '.join(met)},)), {{}})" if has_variants(given) else "{}"
                out.constants["variant_of"] = variant_of
                _target(target, columns, out, added)
            if not isinstance(target, ToGroups):  # groups come from several rows
                out.line("place(position)")
    if isinstance(target, ToGroups) and collects:
        fresh = [out.name() for _ in columns]
        if bind:
            out.line(bind)
        with out.block(f"for {', '.join(fresh)}, in made:" if fresh else "for _ in made:"):
            names = iter(fresh[len(fresh) - len(list(filter(None, ones))) :])
            to_groups(target, fresh, [next(names) if each else "" for each in ones], out)


def emit_failures(given: Fragment, out: Emitter, number: str = "") -> None:
    """Adds what happens to a row that fails: it fails as a whole, also if it has become several.

    Args:
      number: at the end of the names of the results.
    """
    out.constants.update({"FunctionError": FunctionError, "placed": placed})
    out.places.columns = None
    with out.block("except FunctionError as error:"):
        out.line(f"raise placed(error, record, {given.statement.name!r}) from error")
    with out.block("except Exception as error:"):
        out.line(f"failed{number}[position] = failure(error)")
        if _is_generating(given):
            out.line(f"while positions{number} and positions{number}[-1] == position:")
            out.line(f"    del values{number}[-1], positions{number}[-1]")


def _failure(places: Places, error: Exception) -> ValueFailure:
    """Returns the error of a row, which names the expression that failed. Raises what the row did not cause."""
    if not isinstance(error, ValueFailure):
        is_expected = isinstance(error, (SerdeError, UnicodeError, ArithmeticError))
        reason = str(error) if is_expected else internal_error(error, "a row of SQL")
        error = ValueFailure(reason).with_traceback(error.__traceback__)
    return places.located(error)


def source_columns(given: Fragment) -> Columns:
    """Returns the columns of the source, by name."""
    source = given.source
    if isinstance(source, FromTable):
        return Columns([each.name for each in source.columns])
    return Columns(names_of(source.fields))


def _is_generating(given: Fragment) -> bool:
    return any(isinstance(each, (Generate, LookUp, WindowStep)) for each in given.steps)


def source_names(fragment: Fragment, out: Emitter) -> list[str]:
    """Loads the columns that are used. Returns their names; those of others are empty."""
    used = used_columns(fragment)
    if isinstance(fragment.source, OtherSource):
        return _load(fragment.source.codes(used, out), fragment.source.fields, out)
    if isinstance(fragment.source, FromRows):
        return _load({i: f"record[{i}]" for i in used}, fragment.source.fields, out)
    if fragment.source.table.primary_key:
        out.line("if not record.body: continue")  # a tombstone: no row
    columns = fragment.source.columns
    fields = [Field(each.name, each.type) for each in columns]
    codes = metadata_codes(columns, used, out)
    body = [i for i in sorted(used) if not columns[i].metadata]
    if body:
        _decode(fragment.source.table, [fields[i] for i in body], out, makes_nulls=fragment.statement.makes_nulls)
        codes |= {i: f"d{position}" for position, i in enumerate(body)}
    return _load(codes, fields, out)


def metadata_codes(columns: Sequence[Column], used: set[int], out: Emitter) -> dict[int, str]:
    """Returns Python's expressions for the metadata among the columns that are used, by position.

    Others have written it: a clock, or bytes that are not UTF-8. What SQL does not have is `ValueFailure`.
    """
    found = {}
    for position in used:
        column = columns[position]
        if column.metadata is not None:
            found[position] = column.metadata.read
            if (check := _CHECKS.get(column.type.kind)) is not None:
                checked = out.constant(partial(_checked, check, column.name), "t")
                found[position] = f"{checked}({column.metadata.read})"
    return found


def _checked(check: Callable[[Any], Any], name: str, given: Any) -> Any:
    try:
        return None if given is None else check(given)
    except ValueFailure as error:
        raise ValueFailure(f"column {name}: {error}") from None


def _well_formed_texts(given: Mapping[str, str]) -> dict[str, str]:
    return {well_formed(name): well_formed(text) for name, text in given.items()}


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(TIMESTAMPS, in_years), "VARCHAR": well_formed, "MAP": _well_formed_texts,
}  # fmt: skip


def _load(codes: dict[int, str], fields: Sequence[Field], out: Emitter) -> list[str]:
    names = [""] * len(fields)
    for position, code in sorted(codes.items()):
        if code.isidentifier():
            names[position] = code
        else:
            names[position] = out.name("c")
            out.line(f"{names[position]} = {code}")
        out.remember(InputRef(fields[position].type, position), names[position])
    return names


def _decode(table: Table, fields: list[Field], out: Emitter, *, makes_nulls: bool) -> None:
    from rmqio.sql.formats import LenientDecoder, decoder_of

    decoder = decoder_of(table, fields)
    out.constants.update({"decode": decoder.fast, "exact": decoder.exact})
    if makes_nulls:
        out.constants["exact"] = LenientDecoder(table, fields, decoder).exact
    names = [f"d{position}" for position in range(len(fields))]
    with out.block("try:"):
        out.line("row = decode(record.body)")
        for name, code, convert in zip(names, decoder.columns, decoder.converters, strict=True):
            out.line(f"{name} = {code.format('row')}")
            if convert is not None:
                out.line(f"if {name} is not None: {name} = {out.constant(convert, 'v')}({name})")
    with out.block("except Exception:"):  # not a usual body
        out.line(f"{', '.join(names)}, = exact(record.body{', nulls' if makes_nulls else ''})")


def used_columns(fragment: Fragment) -> set[int]:
    """The columns of the source that the first step reads, or all."""
    if not fragment.steps:
        fields = fragment.source.columns if isinstance(fragment.source, FromTable) else fragment.source.fields
        return set(range(len(fields)))
    first = fragment.steps[0]
    if isinstance(first, (Generate, LookUp, WindowStep)):
        return used_columns(replace(fragment, steps=()))
    used = [each for each in (first.condition, *first.projections) if each is not None]
    return {index for each in used for index in expressions.inputs(each)}


def has_variants(given: Fragment) -> bool:
    """Returns whether results are pairs (variant, message), which `Batch` makes ids of.

    Rows of a message that are numbered would have the ids of others if the table has changed when they come again.
    """
    if not isinstance(given.source, FromTable) or not isinstance(given.target, ToTable):
        return False
    return given.target.table.options.is_exactly_once and any(
        _is_uncertain(given.steps, number) for number in range(len(given.steps))
    )


def _is_uncertain(steps: tuple[Step, ...], number: int) -> bool:
    """Whether a look-up says how many rows come of a message."""
    step = steps[number]
    return isinstance(step, LookUp) and not (
        step.is_unique and not any(isinstance(each, Generate) for each in steps[number:])
    )


def _steps(steps: tuple[Step, ...], columns: list[str], out: Emitter, loops: ExitStack, met: list[str]) -> list[str]:
    """Adds the steps. Returns the columns. `met`: takes what look-ups find that say how many rows there are."""
    for number, step in enumerate(steps):
        if isinstance(step, LookUp):
            columns = loops.enter_context(looked_up(step, columns, out))
            if _is_uncertain(steps, number):
                met += columns[len(step.fields) :]
            continue
        if isinstance(step, WindowStep):
            is_nullable = step.fields[step.window.time].type.is_nullable
            columns = windowed(step.window, columns, is_nullable, out, loops)
            fields = window_fields(step.window)
            for position, (name, field) in enumerate(zip(columns[-3:], fields, strict=True), len(columns) - 3):
                out.remember(InputRef(field.type, position), name)
            _more_columns([each.name for each in fields], out)
            continue
        if isinstance(step, Generate):
            columns = emit_expanded(step.rows, step.shape, step.types, columns, out, loops)
            _more_columns(step.names, out)
            continue
        if step.condition is not None:
            skip_unless(step.condition, out)
        columns = [_named(value(each, out), out) for each in step.projections]
        out.places.columns = Columns(step.projections, out.places.columns)
        if number + 1 < len(steps):
            out.forget_inputs()
            for position, (name, each) in enumerate(zip(columns, step.projections, strict=True)):
                out.remember(InputRef(each.type, position), name)
    return columns


def _more_columns(names: Sequence[str], out: Emitter) -> None:
    if out.places.columns is not None:
        out.places.columns = out.places.columns.with_names(names)


def _named(code: str, out: Emitter) -> str:
    """A literal gets a name: it is tested for NULL like everything else."""
    if code.isidentifier():
        return code
    name = out.name()
    out.line(f"{name} = {code}")
    return name


def _target(target: Target, columns: list[str], out: Emitter, added: str = "{}") -> None:
    match target:
        case ToRows():
            out.line(f"add(({', '.join(columns)}{',' * bool(columns)}))")
        case ToKeys():
            _to_keys(target, columns, out)
        case ToRanks():
            keys = [columns[each] for each in target.keys]
            out.constants.update({"key_bytes": key_bytes, "pack": pack, "no_time": no_time})
            end = "None" if target.window_end is None else columns[target.window_end]
            if target.time is not None:
                out.line(f"if {columns[target.time]} is None: no_time()")
            if target.zone is not None:
                out.constants["last_instant_in"] = last_instant_in
                end = f"last_instant_in({target.zone!r}, {end}) + 1000"
            out.line(f"add((key_bytes(({', '.join(keys)}{',' * bool(keys)})), pack(({', '.join(columns)},)), {end}))")
        case ToTable():
            _to_table(target, columns, out, added)
        case OtherTarget():
            target.emit(columns, out)


def _to_keys(target: ToKeys, columns: list[str], out: Emitter) -> None:
    keys = [columns[each] for each in target.keys]
    out.constants.update({"key_bytes": key_bytes, "pack": pack, "null_key": null_key})
    is_null = " or ".join([*(f"{each} is None" for each in keys), *_nans(target, keys, out)])
    key, packed = (f"({', '.join(each)}{',' * bool(each)})" for each in (keys, columns))
    key = f"key_bytes({key})"
    row = out.name("r")
    if keys and target.nulls_of is None and not target.with_nulls:
        out.line(f"if {is_null}: continue")
    out.line(f"{row} = pack({packed})")
    if keys and target.nulls_of is not None:
        key = f"null_key({target.nulls_of}, {row}) if {is_null} else {key}"
    if target.timing is None:
        out.line(f"add(({key}, {row}))")
        return
    time = columns[target.timing.time]
    out.constants["no_time"] = no_time
    out.line(f"if {time} is None: no_time()")
    out.line(f"add(({key}, {row}, {time}))")


def _nans(target: ToKeys, keys: list[str], out: Emitter) -> Iterator[str]:
    """Tests of a NaN in a key."""
    for each, kind in zip(keys, target.kinds, strict=False):
        if kind.kind in APPROXIMATE:
            yield f"{each} != {each}"
        elif has_floats(kind):
            yield f"{out.constant(with_distinct_nans, 'u')}({each}) != {each}"


def _to_table(target: ToTable, columns: list[str], out: Emitter, added: str = "{}") -> None:
    from rmqio.sql.formats import encoder_of
    from rmqio.sql.formats.base import require_parts

    table = target.table
    if (at := id_position(target.columns)) is not None:
        rest = ToTable(target.table, target.columns[:at] + target.columns[at + 1 :])
        out.line(f"row_id = {columns[at]}")
        _to_table(rest, columns[:at] + columns[at + 1 :], out, "(row_id, {})")
        return
    body = [(c, name) for c, name in zip(target.columns, columns, strict=True) if c.is_physical]
    for column, name in body:
        if has_required_parts(column.type):
            out.line(f"{out.constant(partial(require_parts, column.type, column.name), 'v')}({name})")
    encoder = encoder_of(table, [Field(each.name, each.type) for each, _ in body])
    written = encoder.source([name for _, name in body])
    source = out.expression(written, encoder.constants) if target.has_body else "b''"
    metadata = {
        each.metadata.written: (name, each.type)
        for each, name in zip(target.columns, columns, strict=True)
        if each.metadata is not None
    }
    by_name = {each.name: (name, each.type) for each, name in zip(target.columns, columns, strict=True)}
    keys = []
    for each in table.options.keys:
        if each in by_name:
            name, kind = by_name[each]
            keys.append(_text(name, kind, out))
    primary = []
    for each in table.primary_key:
        if each in by_name:
            name, kind = by_name[each]
            primary.append(_text(name, kind, out))
    if not metadata and not keys and not primary:
        out.line(f"add({added.format(source)})")
        return
    from rmqio.sql.compile.messages import message

    fixed = {key: code for key, (code, _) in metadata.items()}
    if primary:
        fixed["primary_key"] = f"({', '.join(primary)},)"
    if keys:
        fixed["key_columns"] = f"({', '.join(keys)},)"
    out.constants["message"] = message
    made = f"message({source}, {', '.join(f'{key}={code}' for key, code in fixed.items())})"
    out.line(f"add({added.format(made)})")


def _text(name: str, kind: SqlType, out: Emitter) -> str:
    return f"(None if {name} is None else {out.constant(key_text_of(kind), 'x')}({name}))"


def _require_values(target: Target, columns: list[str], out: Emitter) -> None:
    """A column that is NOT NULL takes no NULL, also if the type of its value says that there is none."""
    if isinstance(target, ToTable) and target.has_body:
        out.constants["is_null"] = is_null
        for each, name in zip(target.columns, columns, strict=True):
            if not each.type.is_nullable and not each.name.startswith("$"):
                out.line(f"if {name} is None: is_null({each.name!r})")


def placed(error: FunctionError, record: Any, statement: str) -> FunctionError:
    """Returns the error of an aggregate of the user's own, with the place of the row that it failed at."""
    at = f"{record.queue}, offset {record.queue_offset}: " if isinstance(record, Record) else ""
    return FunctionError(f"{at}{error}{f' ({statement})' if statement else ''}")
