"""The shell on a terminal: a line editor with history and completion, by prompt_toolkit."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import platformdirs
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.completion import Completion as Shown
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from rmqio.errors import RmqioError
from rmqio.sql.analysis.functions import function_names
from rmqio.sql.catalog.option_checks import folded_key
from rmqio.sql.catalog.options import FORMATS, ON_ERROR, STARTS, option_keys
from rmqio.sql.catalog.settings import NAME, TTL
from rmqio.sql.catalog.tables import Catalog, Table
from rmqio.sql.pieces import open_token, pieces
from rmqio.sql.planning.plan import Field
from rmqio.sql.shell.plans import OWN
from rmqio.sql.shell.processes import StatementFailed
from rmqio.sql.shell.rendering import columns_of, quoted
from rmqio.sql.shell.session import End, Session, is_complete
from rmqio.sql.syntax import nodes
from rmqio.sql.syntax.parser import RESERVED, Expected, expected_after

# Completion: what can stand at the cursor, by the grammar and by the tables that the statement names.

_WORD: Final = re.compile(r"(?:`[^`]*|(?<!\w)[^\W\d]\w*)?\Z")
_NAME: Final = r"(?:`[^`]+`|\{[^{}]+\}|[^\W\d]\w*)"
_OF_TABLE: Final = re.compile(rf"\b(?:FROM|JOIN|,)\s+({_NAME})(?:\s+(?:AS\s+)?({_NAME}))?", re.IGNORECASE)
_AFTER_TABLE: Final = re.compile(r"\b(FROM|JOIN|INTO|TABLE|DESCRIBE|DESC|VIEW)\s+\Z", re.IGNORECASE)
_IN_WITH: Final = re.compile(r"\)\s*WITH\s*\((?:[^()]*)\Z", re.IGNORECASE)
_VALUES: Final = {
    "format": FORMATS, "onerror": ON_ERROR, "scanstartupmode": STARTS, "connector": ("rocketmq", "print", "blackhole"),
}  # fmt: skip
_ALSO_NAMES: Final = {"COMMENT", "KEY", "VIEW", "FINAL", "LEFT", "RIGHT"}
_COMMANDS: Final = ("HELP", "QUIT", "SOURCE")


class Candidate(NamedTuple):
    """A completion. `start`: how many characters before the cursor it replaces. `kind`: what it is."""

    text: str
    start: int
    kind: str


@dataclass(frozen=True, slots=True)
class Completion:
    """Completes statements over a catalog."""

    catalog: Catalog

    def candidates(self, text: str, after: str = "") -> list[Candidate]:
        """Returns what can stand at the end of the text, which is before the cursor; `after` follows it."""
        found = pieces(text)
        begin = found[-1].start if found and not found[-1].is_ended else len(text)
        statement = text[begin:].lstrip()
        whole = statement + after.partition(";")[0]
        kept: dict[str, Candidate] = {}
        for each in self._candidates(statement, whole):
            kept.setdefault(each.text.casefold(), each)
        return list(kept.values())

    def _candidates(self, statement: str, whole: str) -> Iterator[Candidate]:
        sign = open_token(statement)
        if sign == "/*" or re.search(r"--[^\n]*\Z", statement):
            return
        if sign == "'":
            yield from _in_string(statement)
            return
        word = _WORD.search(statement)
        typed = word[0] if word else ""
        before = statement[: len(statement) - len(typed)]
        if (member := re.search(rf"(?<!\w)({_NAME})\.\Z", before)) is not None:
            yield from _matching(typed, self._members(_plain(member[1]), whole), "column")
            return
        if _IN_WITH.search(before) and "=" not in before.rpartition(",")[2].rpartition("(")[2]:
            yield from _matching(typed, (f"'{each}'" for each in option_keys()), "option")
            return
        expected = expected_after(before)
        if expected is None:
            return
        yield from self._names(typed, before, whole, expected)
        keywords = set(expected.keywords) if before.strip() else {*expected.keywords, *_COMMANDS}
        if expected.is_name:  # they are names there
            keywords -= _ALSO_NAMES if expected.is_value else _ALSO_NAMES | {"DATE", "TIME", "TIMESTAMP"}
        yield from _matching(typed, sorted(keywords), "keyword")

    def _names(self, typed: str, before: str, whole: str, expected: Expected) -> Iterator[Candidate]:
        if (kind := _AFTER_TABLE.search(before)) is not None:
            if not re.search(r"\bCREATE\s+(TEMPORARY\s+)?(TABLE|VIEW)\s+\Z", before, re.IGNORECASE):
                views = set(self.catalog.views)
                names = {"VIEW": views, "INTO": self._tables() - views}.get(kind[1].upper(), self._tables())
                yield from _matching(typed, map(quoted, sorted(names)), "table")
        elif expected.is_value:
            tables = self._in_statement(whole)
            columns = dict.fromkeys(each for table in tables.values() for each in self._columns(table))
            yield from _matching(typed, map(quoted, columns), "column")
            yield from _matching(typed, (quoted(each) for each in tables), "table")
            if typed:
                functions = sorted({*function_names(), *self.catalog.functions})
                yield from _matching(typed, (f"{each}(" for each in functions), "function")

    def _tables(self) -> set[str]:
        catalog = self.catalog
        further: Iterable[str] = ()
        if catalog.further is not None:
            try:
                further = catalog.further.names()
            except Exception:  # noqa: BLE001  # a registry that is down: a statement will say so
                further = ()
        return {*catalog.tables, *catalog.views, *further}

    def _in_statement(self, whole: str) -> dict[str, str]:
        """The tables of the statement, by the names under which their columns are known there."""
        found = {}
        for name, alias in _OF_TABLE.findall(whole):
            table = _plain(name)
            is_alias = alias and (alias[0] in "`{" or alias.upper() not in _NO_ALIAS)
            found[_plain(alias) if is_alias else table] = table
        known = self._tables()
        return {alias: table for alias, table in found.items() if table in known}

    def _members(self, alias: str, whole: str) -> list[str]:
        table = self._in_statement(whole).get(alias)
        return [] if table is None else list(map(quoted, self._columns(table)))

    def _columns(self, name: str) -> list[str]:
        from rmqio.sql.analysis.queries import QueryBinder

        try:
            found = self.catalog.relation(nodes.Name(name))
            fields: Iterable[Field]
            if isinstance(found, Table):
                fields = columns_of(found)
            else:
                fields = QueryBinder(self.catalog, 1).named(nodes.Name(name)).fields
        except Exception:  # noqa: BLE001  # not valid any more: a statement will say so
            return []
        return [each.name for each in fields]


_NO_ALIAS: Final = {
    "WHERE", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ON", "GROUP", "ORDER", "LIMIT", "UNION", "HAVING",
    "FOR", "WINDOW", "EMIT", "USING", "OFFSET", "FETCH",
}  # fmt: skip


def _matching(typed: str, names: Iterable[str], kind: str) -> Iterator[Candidate]:
    """The names that begin with what was typed. Keywords are spelled as the user types: in lower case, or not."""
    folded = typed.lstrip("`'").casefold()
    for each in names:
        if each.lstrip("`'").casefold().startswith(folded):
            is_lower = typed != "" and typed == typed.lower() and kind in ("keyword", "function")
            yield Candidate(each.lower() if is_lower else each, len(typed), kind)


def _in_string(statement: str) -> Iterator[Candidate]:
    """Keys and values of options, and keys of SET."""
    found = re.search(r"'([^']*)\Z", statement)
    assert found is not None
    before, typed = statement[: found.start()], "'" + found[1]
    if re.search(r"\b(?:SET|RESET)\s+\Z", before, re.IGNORECASE):
        yield from _matching(typed, (f"'{each}'" for each in (*OWN, TTL, NAME)), "setting")
    elif _IN_WITH.search(before):
        value_of = re.search(r"'?([\w.-]+)'?\s*=\s*\Z", before)
        if value_of is None:
            yield from _matching(typed, (f"'{each}'" for each in option_keys()), "option")
        else:
            values = _VALUES.get(folded_key(value_of[1]), ())
            yield from _matching(typed, (f"'{each}'" for each in values), "value")


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[:1] in ("`", "{") else name


_PROMPT: Final = "sql> "
_MORE: Final = "...> "
_STYLE: Final = Style.from_dict({"keyword": "bold", "string": "ansigreen", "number": "ansicyan", "comment": "italic"})
_TOKEN: Final = re.compile(
    r"(?P<comment>--.*|/\*.*?(?:\*/|$))|(?P<string>'(?:[^']|'')*'?)|(?P<name>`[^`]*`?)|(?P<number>\b\d+(?:\.\d+)?\b)"
    r"|(?P<word>[^\W\d]\w*)|(?P<other>.)"
)
_KEYWORDS: Final = RESERVED | {"VIEW", "FUNCTION", "EXPLAIN", "DESCRIBE", "SHOW", "TABLES", "VIEWS", "FUNCTIONS",
                               "RESET", "IF", "WATERMARK", "METADATA", "PRIMARY", "KEY", "TRY_CAST"}  # fmt: skip


def run(session: Session) -> None:
    """Reads statements from the terminal and runs them, until QUIT or Ctrl-D."""
    editor: PromptSession[str] = PromptSession(
        _PROMPT,
        history=FileHistory(str(_history())),
        completer=_Completer(session),
        complete_in_thread=True,
        complete_while_typing=False,
        lexer=_Lexer(),
        style=_STYLE,
        multiline=True,
        prompt_continuation=_MORE,
        key_bindings=_keys(),
        enable_open_in_editor=True,
    )
    is_running = False
    while True:
        try:
            if is_running:
                is_running = False
                session.note("interrupted")
            text = editor.prompt()
            is_running = True
            # The editor has a handler of its own, which a Ctrl-C at its very end would leave behind.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _run(session, text)
            is_running = False
        except KeyboardInterrupt:  # it ends the query, or clears the statement
            continue
        except (EOFError, End):
            return


def _run(session: Session, text: str) -> None:
    try:
        session.run(text)
    except StatementFailed:
        pass  # its process has said why
    except (RmqioError, OSError) as error:
        session.note(str(error))


def _history() -> Path:
    """The file of earlier statements, which only its owner can read: options of tables can be secrets."""
    path = platformdirs.user_state_path("rmqio", ensure_exists=True) / "sql_history"
    path.touch(mode=0o600)
    with contextlib.suppress(PermissionError):  # it is another owner's
        path.chmod(0o600)  # of an older version
    return path


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected)
    def _(event: Any) -> None:
        """Enter ends a statement that is complete, and begins a new line in another one."""
        buffer = event.current_buffer
        if is_complete(buffer.text) and not buffer.document.text_after_cursor.strip():
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("enter", filter=completion_is_selected)
    def _(event: Any) -> None:
        event.current_buffer.complete_state = None

    return keys


class _Completer(Completer):
    def __init__(self, session: Session) -> None:
        self._completion = Completion(session.script.catalog)

    def get_completions(self, document: Document, complete_event: Any) -> Iterable[Shown]:
        for each in self._completion.candidates(document.text_before_cursor, document.text_after_cursor):
            yield Shown(each.text, -each.start, display_meta=each.kind)


class _Lexer(Lexer):
    def lex_document(self, document: Document) -> Any:
        def line(number: int) -> list[tuple[str, str]]:
            return [(_style(each), each[0]) for each in _TOKEN.finditer(document.lines[number])]

        return line


def _style(token: re.Match[str]) -> str:
    if token.lastgroup == "word":
        return "class:keyword" if token[0].upper() in _KEYWORDS else ""
    return f"class:{token.lastgroup}" if token.lastgroup in ("comment", "string", "number") else ""
