"""The shell on a terminal: a line editor with history and completion, by prompt_toolkit."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

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
from rmqio.sql.shell.completion import Completion
from rmqio.sql.shell.processes import StatementFailed
from rmqio.sql.shell.session import End, Session, is_complete
from rmqio.sql.syntax.parser import RESERVED

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
