"""A session of the shell: runs statements one after the other, and prints what they give."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from rmqio import security
from rmqio.interfaces import ClientFactory, QueueClient
from rmqio.options import options_of_cluster
from rmqio.sql.catalog.tables import Table
from rmqio.sql.errors import Refusal, SqlError, nearest
from rmqio.sql.explain.plans import explain, for_terminal
from rmqio.sql.pieces import open_token, pieces
from rmqio.sql.planning.checks import require_files
from rmqio.sql.planning.plan import Relation, Sink
from rmqio.sql.planning.pushdown import endless_reads
from rmqio.sql.scripts.catalog_file import KINDS, CatalogFile, Created
from rmqio.sql.scripts.script import Script
from rmqio.sql.secrets import masked
from rmqio.sql.shell import rendering
from rmqio.sql.shell.plans import OWN, START, STOP, Bounds, ScanOptions, branches, for_reading, tables
from rmqio.sql.shell.rendering import RowPrinter, print_names, print_table
from rmqio.sql.syntax import nodes, statements
from rmqio.start import StartFrom, StopAt

Rows = Generator[list[tuple[Any, ...]], None, None]
_COMMAND: Final = re.compile(r"\s*(help|quit|exit|source)\b\s*(.*?)\s*;?\s*", re.IGNORECASE | re.DOTALL)
_QUIT: Final = re.compile(r"\s*(quit|exit)\b", re.IGNORECASE)
_INTERRUPTED: Final = 130
HELP: Final = """\
A statement ends with a semicolon, and can have several lines.

  SELECT ...;               prints rows as they come; Ctrl-C ends the query
  SELECT ... LIMIT 20;      ends after 20 rows
  CREATE TABLE | VIEW | FUNCTION ...;   DROP ...;   the catalog keeps them
  INSERT INTO t SELECT ...; runs a job, until Ctrl-C or its end
  EXPLAIN ...;              shows a plan
  SHOW TABLES | VIEWS | FUNCTIONS;   SHOW CREATE TABLE t;   DESCRIBE t;
  SET;                      shows settings
  SET 'scan.startup.mode' = 'latest';   RESET 'scan.startup.mode';
  SOURCE file.sql           runs the statements of a file
  HELP, QUIT                Tab completes, Ctrl-D ends"""


class End(Exception):
    """QUIT."""


def is_complete(text: str) -> bool:
    """Returns whether the text ends: with a semicolon, or as HELP, QUIT and SOURCE do; or there is nothing in it."""
    found = pieces(text)
    if not found or found[-1].is_ended:
        return True
    last = text[found[-1].start :]
    if found[-1].is_empty and "\n" not in last and not open_token(text):  # a comment behind the semicolon
        return found[0].is_ended
    return not last.strip() or _COMMAND.fullmatch(last) is not None


def is_command(text: str) -> bool:
    """Returns whether the text is a command of the shell, such as HELP."""
    return _COMMAND.fullmatch(text) is not None


@dataclass
class Session:
    """A session.

    Args:
      arguments: those of the command line.
      write: takes lines of output.
      note: takes remarks that are not part of it.
      catalog: where what is created is kept; None: in the session only.
      script: with what the catalog has.
      client_factory: replaces the clients in tests.
      is_script: nobody types: a SELECT ends where the topics end now, also an INSERT INTO that is not the last
        statement, and an interrupted job ends the session.
    """

    arguments: argparse.Namespace
    write: Callable[[str], object]
    note: Callable[[str], object]
    catalog: CatalogFile | None = None
    script: Script = field(default_factory=Script)
    scan: ScanOptions = field(default_factory=ScanOptions)
    client_factory: ClientFactory | None = None
    is_script: bool = False
    _texts: dict[tuple[str, str], str] = field(default_factory=dict)
    _set: dict[str, str] = field(default_factory=dict)
    _clients: dict[str | None, QueueClient] = field(default_factory=dict)
    _sources: tuple[Path, ...] = ()
    _own: set[tuple[str, str]] = field(default_factory=set)
    _is_last: bool = True
    """Whether no statement is behind the one that runs, of this text and of those that run it by SOURCE."""

    def run(self, text: str, file: str = "") -> None:
        """Runs statements. Raises `SqlError` for the first that is not valid or fails, and `End`."""
        is_last, found = self._is_last, [each for each in pieces(text) if not each.is_empty]
        for piece, after in zip_longest(found, found[1:]):
            self._is_last = is_last if after is None else _QUIT.match(text, after.start) is not None
            if (command := _COMMAND.fullmatch(text, piece.start, piece.end)) is not None:
                self._command(command[1].lower(), command[2])
                continue
            # The text before it stays, blank, so that errors have their lines and columns.
            before = re.sub(r"[^\n]", " ", text[: piece.start])
            for statement in self.script.texts.parse(before + text[piece.start : piece.end], file):
                self._run(statement)

    def load(self) -> None:
        """Adds what the catalog has. Raises `SqlError`."""
        if self.catalog is not None:
            for each in self.catalog.load(self.script):
                self._texts[KINDS[type(each)], each.name.text] = self.script.texts.text_of(each.span)

    def release(self) -> None:
        """Keeps what was loaded for this session only: nothing goes into the catalog, and CREATE takes its names."""
        self.catalog = None
        self._own = set(self._texts)

    def close(self) -> None:
        """Closes connections."""
        for each in self._clients.values():
            each.close()

    # ---- statements ----

    def _command(self, name: str, argument: str) -> None:
        match name:
            case "help":
                self.write(HELP)
            case "source":
                self._source(argument)
            case _:
                raise End

    def _source(self, argument: str) -> None:
        path = Path(argument.strip("'"))
        if path.resolve() in self._sources:
            raise SqlError(f"{path} runs itself by SOURCE")
        try:
            text = path.read_text("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SqlError(f"{path} is not UTF-8: byte {error.start} is not") from error
        except OSError as error:
            raise SqlError(f"cannot read {path}: {error.strerror}") from error
        before, self._sources = self._sources, (*self._sources, path.resolve())
        try:
            self.run(text, str(path))
        finally:
            self._sources = before

    def _run(self, statement: statements.Statement) -> None:
        with self.script.placing(statement):
            self.script.check_place(statement)
        match statement:
            case statements.QueryStatement():
                self._select(statement)
            case statements.Insert() | statements.BeginSet() | statements.EndSet():
                self.script.run_statement(statement)
                if self.script.is_in_set:
                    return
                sinks, self.script.sinks = self.script.sinks, []
                if sinks:
                    self._insert(sinks)
            case statements.Explain():
                self.script.run_statement(statement)
                self.write(for_terminal(explain([self.script.explained.pop()])))
            case statements.Show() | statements.Describe():
                with self.script.placing(statement):
                    self._show(statement)
            case statements.SetOption(option=None):
                self._show_settings()
            case statements.SetOption(option=option) if option is not None:
                self._set_option(statement, option)
            case statements.Reset():
                self._reset(statement)
            case statements.CreateTable() | statements.CreateView() | statements.CreateFunction():
                self._create(statement)
            case statements.Drop():
                name = statement.name.text
                if statement.kind == "FUNCTION":
                    name = self.script.catalog.function_named(name) or name
                self.script.run_statement(statement)
                if self.catalog is not None:
                    self.catalog.remove(statement.kind, name)
            case _:
                self.script.run_statement(statement)

    def _create(self, statement: Created) -> None:
        kind, name = KINDS[type(statement)], statement.name.text
        catalog = self.script.catalog
        kinds: dict[str, Mapping[str, object]]
        kinds = {"TABLE": catalog.tables, "VIEW": catalog.views, "FUNCTION": catalog.functions}
        known = kinds[kind]
        self._release_name(kind, name)
        is_new = name not in known
        self.script.run_statement(statement)
        if not is_new:
            return
        text = self._texts[kind, name] = self.script.texts.text_of(statement.span)
        is_temporary = re.match(r"CREATE\s+TEMPORARY\b", text, re.IGNORECASE) is not None
        if self.catalog is not None and name in known and not is_temporary:
            self.catalog.add(kind, name, text)

    def _release_name(self, kind: str, name: str) -> None:
        """What a script creates takes the place of what the user's own catalog has by that name."""
        catalog = self.script.catalog
        places: dict[str, dict[str, Any]] = {"TABLE": catalog.tables, "VIEW": catalog.views}
        if kind == "FUNCTION":
            places, name = {"FUNCTION": catalog.functions}, catalog.function_named(name) or name
        for each, known in places.items():
            if (each, name) in self._own:
                self._own.remove((each, name))
                known.pop(name, None)

    # ---- settings ----

    def _set_option(self, statement: statements.SetOption, option: statements.Option) -> None:
        with self.script.placing(statement):
            if option.key.lower() in OWN:
                self.scan = self.scan.with_option(option)
            else:
                try:
                    self.script.settings = self.script.settings.with_option(option)
                except Refusal as refusal:
                    hint = nearest(option.key.lower(), OWN) if "did you mean" not in refusal.message else ""
                    raise Refusal(refusal.message + hint, refusal.span) from None
        self._set[option.key.lower()] = option.value

    def _reset(self, statement: statements.Reset) -> None:
        if statement.key is None or statement.key.lower() not in OWN:
            self.script.run_statement(statement)
        for key in OWN if statement.key is None else (statement.key.lower(),):
            self.scan = self.scan.without(key) if key in OWN else self.scan
        self._set = {} if statement.key is None else {k: v for k, v in self._set.items() if k != statement.key.lower()}

    def _show_settings(self) -> None:
        defaults = {START: "as the table says, else earliest", STOP: "unbounded; with a shuffle: latest"}
        rows = [(key, value) for key, value in self._set.items()]
        rows += [(key, f"({text})") for key, text in defaults.items() if key not in self._set]
        print_table(("setting", "value"), sorted(rows), self.write, is_read=self._is_read)

    @property
    def _is_read(self) -> bool:
        """Whether a program reads what is printed."""
        return self.is_script and not sys.stdout.isatty()

    # ---- the catalog ----

    def _show(self, statement: statements.Show | statements.Describe) -> None:
        catalog = self.script.catalog
        if isinstance(statement, statements.Describe):
            found = catalog.relation(statement.name)
            table = found if isinstance(found, Table) else None
            fields = rendering.columns_of(found) if isinstance(found, Table) else (
                self.script.binder().named(statement.name).fields
            )  # fmt: skip
            self._list(rendering.described(fields, table, self.script.texts))
        elif statement.kind == "FUNCTIONS":
            for title, names in rendering.list_functions(catalog).items():
                print_names(title, names, self.write)
        elif statement.name is not None:
            self.write(self._text_of(statement.kind.removeprefix("CREATE "), statement.name))
        else:
            self._list((rendering.list_tables if statement.kind == "TABLES" else rendering.list_views)(catalog))

    def _text_of(self, kind: str, name: nodes.Name) -> str:
        found = self.script.catalog.relation(name)
        is_table = isinstance(found, Table)
        if is_table != (kind == "TABLE"):
            what = "table: SHOW CREATE TABLE" if is_table else "view: SHOW CREATE VIEW"
            raise Refusal(f"{name} is a {what}", name.span)
        text = self._texts.get((kind, name.text))
        if text is None and self.script.catalog.further is not None:
            text = self.script.catalog.further.text(name.text)
        return f"{masked(text or '')};"

    def _list(self, listing: rendering.Listing) -> None:
        names, rows = listing
        print_table(names, rows, self.write, is_read=self._is_read)

    # ---- queries ----

    def _select(self, statement: statements.QueryStatement) -> None:
        query, limit, offset = statement.query, None, 0
        if not query.order_by:  # the shell itself counts rows as they come
            limit, offset = query.limit, query.offset
            query = replace(query, limit=None, offset=0)
        with self.script.placing(statement):
            plan = self.script.query(query)
            bounds = self._bounds()
            if self.is_script and bounds.stop is None and not self.scan.is_endless:
                bounds = replace(bounds, stop=StopAt.latest())
            plan = for_reading(plan, bounds)
            parts = branches(plan)
            if parts is None and bounds.stop is None and not all(map(bounds.stop_of, tables(plan))):
                if self.scan.is_endless:
                    raise Refusal(
                        "a query with a shuffle needs inputs that end, here: RESET 'scan.bounded.mode' reads what the"
                        " topics hold now; INSERT INTO runs an endless job",
                        statement.span,
                    )
                bounds = replace(bounds, stop=StopAt.latest())
                self.note("reading what the topics hold now")
        if limit == 0:
            RowPrinter(plan.fields, self.write, is_read=self._is_read).end()
            return
        rows = self._read(parts, bounds) if parts is not None else self._run_query(plan, bounds)
        self._print(plan, rows, limit, offset)

    def _read(self, parts: Any, bounds: Bounds) -> Rows:
        from rmqio.sql.shell.reading import RowReader

        return RowReader(parts, bounds, self._client, self.note).rows()

    def _run_query(self, plan: Relation, bounds: Bounds) -> Rows:
        from rmqio.sql.shell.processes import Work, rows_of

        require_files([plan], runs_here=True)
        work = Work(self._arguments(bounds), self.script.settings, texts=self.script.texts, query=plan)
        return rows_of(work, plan.fields)

    def _print(self, plan: Relation, rows: Rows, limit: int | None, offset: int) -> None:
        printer = RowPrinter(plan.fields, self.write, is_read=self._is_read, is_endless=self.scan.is_endless)
        began = time.monotonic()
        with closing(rows):
            try:
                for found in rows:
                    skipped = min(offset, len(found))
                    offset -= skipped
                    left = None if limit is None else limit - printer.count
                    printer.print(found[skipped:][:left])
                    if limit is not None and printer.count >= limit:
                        break
            finally:
                printer.flush()
        printer.end()
        count = f"{printer.count:,} row{'' if printer.count == 1 else 's'}"
        self.note(f"{count}, {time.monotonic() - began:.1f} s")

    def _client(self, table: Table) -> QueueClient:
        name_server = table.options.name_server or self.arguments.name_server
        if name_server not in self._clients:
            factory = self.client_factory or self._factory(name_server)
            self._clients[name_server] = factory.queue_client()
        return self._clients[name_server]

    def _factory(self, name_server: str | None) -> ClientFactory:
        from rmqio.client.factory import RemotingClientFactory

        return RemotingClientFactory(options_of_cluster(name_server, security.from_arguments(self.arguments)))

    def _insert(self, sinks: list[Sink]) -> None:
        from rmqio.sql.shell.processes import Work, require_success, run

        require_files(sinks, runs_here=self.arguments.runner == "DirectRunner")
        bounds = self._bounds()
        bounds = replace(bounds, start=self.scan.start or bounds.start)  # of tables that do not say it, as in a job
        names = ", ".join(dict.fromkeys(each.table.name for each in sinks))
        if self.is_script and not self._is_last and bounds.stop is None and endless_reads(sinks):
            if self.scan.is_endless:
                raise SqlError(
                    f"INSERT INTO {names} never ends, and statements are behind it: RESET 'scan.bounded.mode' ends it"
                    " with what the topics hold now"
                )
            # What it reads now: of a group, what the group has not read yet.
            bounds = replace(bounds, start=bounds.start or StartFrom.group_offsets("earliest"), stop=StopAt.latest())
        if bounds.stop is None:
            replace(self.script, sinks=sinks).require_no_feedback()
        end = "to its end" if bounds.stop is not None or not endless_reads(sinks) else "until Ctrl-C"
        self.note(f"INSERT INTO {names} runs on {self.arguments.runner}, {end}")
        work = Work(self._arguments(bounds), self.script.settings, tuple(sinks), self.script.texts)
        status = run(work)
        if status == _INTERRUPTED and self.is_script:
            raise KeyboardInterrupt
        if status != _INTERRUPTED:
            require_success(status, f"INSERT INTO {names}")

    def _bounds(self) -> Bounds:
        is_set = self.scan.stop is not None or self.scan.is_endless
        return Bounds(self.scan, self.arguments.start, self.scan.stop if is_set else self.arguments.stop)

    def _arguments(self, bounds: Bounds) -> argparse.Namespace:
        """The arguments for another process: without functions and parsers."""
        kept = {name: value for name, value in vars(self.arguments).items() if name not in ("run", "parser", "whole")}
        found = argparse.Namespace(**kept)
        found.start, found.stop = bounds.start, bounds.stop
        return found
