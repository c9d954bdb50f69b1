"""Parses a script: text to statements, and errors that say what was expected."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import tempfile
import unicodedata
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import lark
import platformdirs
from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.exceptions import VisitError
from lark.grammar import Rule
from lark.lexer import TerminalDef

from rmqio import hints
from rmqio.sql.errors import Refusal, Source, Span, SqlError, listed, nearest
from rmqio.sql.secrets import PARSERS
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.builder import REFUSED, Builder
from rmqio.sql.syntax.nodes import deep_trees

# The parser's tables, kept from one process to the next: Lark takes a second to compute them from the grammar.
#
# They are in a file of the user's cache folder, as JSON. A file of another grammar or of another Lark is replaced. If
# the folder cannot be used, each process computes its own.

_WITH_NUMBERS: Final = "#"
"""The only key of an object that stands for a mapping with numbers for keys, which JSON does not have."""


def parser_of(grammar: str, callbacks: Mapping[str, Any], *, folder: Path | None = None, **options: Any) -> Lark:
    """Returns the parser of a grammar. `callbacks`: of Lark's lexer, by terminal. `options`: of Lark; no functions."""
    file = (folder or _folder()) / "grammar.json"
    key = hashlib.sha256(repr((lark.__version__, grammar, sorted(options.items()))).encode()).hexdigest()
    # A file that somebody has damaged can raise anything
    with contextlib.suppress(Exception):
        kept = json.loads(file.read_bytes(), object_hook=_unnamed)
        if kept["key"] == key:
            found: Lark = Lark._load_from_dict(kept["data"], kept["memo"], lexer_callbacks=dict(callbacks))  # type: ignore[no-untyped-call]
            return found
    made = Lark(grammar, lexer_callbacks=dict(callbacks), **options)
    with contextlib.suppress(OSError):
        _write(file, key, made)
    return made


def _folder() -> Path:
    given = os.environ.get("RMQIO_CACHE")
    return (Path(given) if given else platformdirs.user_cache_path("rmqio")) / "sql"


def _write(file: Path, key: str, parser: Lark) -> None:
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    data["options"] = data["options"] | {"lexer_callbacks": {}}
    text = json.dumps(_named({"key": key, "data": data, "memo": memo}), separators=(",", ":"))
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=file.stem, delete=False) as part:
        part.write(text)
    try:
        os.replace(part.name, file)
    except OSError:
        os.unlink(part.name)
        raise


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        named = {key: _named(each) for key, each in value.items()}
        return {_WITH_NUMBERS: named} if any(isinstance(key, int) for key in value) else named
    return [_named(each) for each in value] if isinstance(value, list | tuple) else value


def _unnamed(value: dict[str, Any]) -> dict[Any, Any]:
    numbered = value.get(_WITH_NUMBERS)
    return value if numbered is None else {int(key): each for key, each in numbered.items()}


# Forms of other systems that the grammar does not have: by the text up to the place that is not valid.

_LONGEST: Final = 300
_NO_BITS: Final = "there are no operators of bits"
OPERATORS: Final = {
    "::": "a cast is CAST(... AS type), and not ::", "&": _NO_BITS, "|": f"{_NO_BITS}, and text is joined by ||",
    "^": f"{_NO_BITS}, and powers are POWER(a, b)",
}  # fmt: skip
"""Operators of other systems."""
UNICODE: Final = "U&'...' is not supported: write the characters themselves, as SQL is UTF-8 text"
_FORMS: Final = tuple(
    (re.compile(rf"(?:^|[;\s])({pattern})$", re.IGNORECASE | re.DOTALL), message)
    for pattern, message in (
        (
            r"(?:FROM|JOIN|INTO|TABLE|VIEW|DESCRIBE)\s+(?:`[^`]+`|\w+)\.",
            "a table's name has one part, and catalogs are given by --catalog",
        ),
        (
            r"CREATE\s+OR",
            "CREATE OR REPLACE is not supported: DROP TABLE IF EXISTS, or DROP VIEW IF EXISTS, comes before",
        ),
        (
            r"CREATE\s+(?:TEMPORARY\s+)?TABLE\s[^;]*\sLIKE",
            "CREATE TABLE ... LIKE is not supported: write the columns, as SHOW CREATE TABLE shows them",
        ),
        (
            r"CREATE\s+(?:TEMPORARY\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?[^\s(]+\s+(?:WITH|AS)",
            "a table needs its columns: CREATE TABLE t (a INT) WITH (...), then INSERT INTO t SELECT ...",
        ),
        (
            r"CREATE\s+(?:TEMPORARY\s+)?TABLE\s[^;]*\)\s*AS",
            "CREATE TABLE ... AS SELECT is not supported: INSERT INTO the table follows in a statement of its own",
        ),
        (
            r"WITH\s+RECURSIVE\s+(?:`[^`]+`|\w+)",
            "WITH RECURSIVE is not supported: no query reads its own rows; a fixed depth is as many joins",
        ),
        (r"INSERT\s+INTO\s+\S+\s+PARTITION", "PARTITION is not supported: a topic is not partitioned by columns"),
        (
            r"EXPLAIN\s+(?:ESTIMATED_COST|CHANGELOG_MODE|JSON_EXECUTION_PLAN|PLAN_ADVICE)",
            "EXPLAIN takes nothing else: it shows the whole plan, with the kind of each relation",
        ),
        (r"SET\s+(?:[\w\-]+(?:\.[\w\-]+)+|[\w.\-]+\s*=[^;]*)", "SET takes quotes: SET 'key' = 'value'"),
        (r"(?:ADD|REMOVE)", "jars are not supported: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON"),
        (r"CREATE\s[^;]*\sUSING", "jars are not supported: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON"),
        (r"(?:LOAD|UNLOAD)", "modules are not supported: all functions are there"),
        (
            r"SHOW\s+(?:TABLES|VIEWS|FUNCTIONS)\s+(?:NOT|LIKE|FROM|IN)",
            "SHOW TABLES, SHOW VIEWS and SHOW FUNCTIONS take nothing else: they show all names",
        ),
        (
            r"SHOW\s+(?:CURRENT|CATALOGS|DATABASES|SCHEMAS)",
            "there are no catalogs and databases to show: --catalog gives tables, and SHOW TABLES shows them",
        ),
        (
            r"SHOW\s+(?:FULL\s+)?COLUMNS",
            "SHOW COLUMNS is not supported: DESCRIBE t shows the columns of t",
        ),
        (r"SHOW\s+JOBS?", "SHOW JOBS is not supported: rmqio sql ps --jobs DIR shows the jobs of a folder"),
        (r"SHOW\s+USER", "SHOW USER FUNCTIONS is not supported: SHOW FUNCTIONS shows first what was created"),
        (r"SHOW\s+CREATE\s+\w+", "SHOW CREATE takes TABLE or VIEW, and a name"),
        (
            r"DESC(?:RIBE)?\s+(?:TABLE|(?:EXTENDED|FORMATTED|FUNCTION|CATALOG|DATABASE|JOB)\s+(?:`[^`]+`|\w+))",
            "DESCRIBE takes a table or a view: DESCRIBE t shows its columns, SHOW CREATE TABLE t also its options",
        ),
        (r"COMPILE", "COMPILE PLAN is not supported: plans are made when a job starts, and --explain shows them"),
        (r"[^;]*\sMULTISET\s*<", "MULTISET is not a type of columns: use ARRAY, or MAP<..., INT>"),
    )
)


def message_for(text: str) -> tuple[str, int] | None:
    """Returns the message for a text that ends at what is not valid, and where the form begins; None: there is none."""
    cut = max(0, len(text) - _LONGEST)
    for form, message in _FORMS:
        if (found := form.search(text, cut)) is not None:
            return message, found.start(1)
    return None


RESERVED: Final = frozenset(
    {
        "ALL", "AND", "ARRAY", "AS", "BETWEEN", "BY", "CASE", "CAST", "CREATE", "CROSS", "DISTINCT", "DROP", "ELSE",
        "END", "EXCEPT", "EXISTS", "FALSE", "FOR", "FROM", "FULL", "GROUP", "HAVING", "IN", "INNER", "INSERT",
        "INTERSECT", "INTERVAL", "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "MINUS", "NATURAL", "NOT",
        "NULL", "ON", "OR", "ORDER", "OUTER", "OVER", "RIGHT", "SELECT", "SET", "TABLE", "THEN", "TRUE", "UNION",
        "UNNEST", "USING", "VALUES", "WHEN", "WHERE", "WITH",
    }
)  # fmt: skip
"""Words that are names only in backquotes, wherever they stand."""


def parse(text: str, file: str = "") -> list[statements.Statement]:
    """Returns the statements of a script. Raises `SqlError` at the first place that is not valid."""
    source = Source(text, file)
    try:
        with deep_trees():
            return cast("list[statements.Statement]", Builder().transform(_parser().parse(text)))
    except RecursionError:
        raise source.error("the statement is nested too deeply", Span(0, 1)) from None
    except VisitError as error:  # from a method of the builder
        if isinstance(error.orig_exc, Refusal):
            raise source.error(error.orig_exc.message, error.orig_exc.span) from None
        raise
    except Refusal as refusal:
        raise source.error(refusal.message, refusal.span) from None
    except UnexpectedInput as error:
        raise _described(source, error) from None


def options_of(text: str) -> list[statements.Option] | None:
    """Returns the options of all statements of a text; None: it does not parse."""
    try:
        with deep_trees():
            found = Builder().transform(_parser().parse(text))
    except (RecursionError, VisitError, Refusal, UnexpectedInput):
        return None
    return [
        option
        for each in found
        if isinstance(each, statements.CreateTable | statements.SetOption)
        for option in (each.options if isinstance(each, statements.CreateTable) else [each.option])
        if option is not None
    ]


PARSERS[:] = [options_of]


@functools.cache
def _parser() -> Lark:
    grammar = resources.files("rmqio.sql.syntax").joinpath("grammar.lark").read_text("utf-8")
    return parser_of(
        grammar,
        {"WORD": _reserved},
        start="script",
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
        maybe_placeholders=False,
    )


def _reserved(token: Token) -> Token:
    """A reserved word is no name, also where the parser can take nothing but a name."""
    if token.upper() in RESERVED:
        return Token.new_borrow_pos(token.upper(), token, token)
    return token


# ---- messages -------------------------------------------------------------------------------------------------------

_OF_NAMES: Final = {"WORD", "QUOTED", "BRACED"}
_OF_VALUES: Final = {"NUMBER", "STRING", "CASE", "NULL", "LPAR"}
_OF_OPERATORS: Final = {"PLUS", "STAR", "EQUAL", "LESSTHAN"}
_SHOWN: Final = {
    "LPAR": "'('", "RPAR": "')'", "COMMA": "','", "SEMICOLON": "';'", "DOT": "'.'", "EQUAL": "'='", "STAR": "'*'",
    "LSQB": "'['", "RSQB": "']'", "STRING": "a string in single quotes", "NUMBER": "a number", "LESSTHAN": "'<'",
    "MORETHAN": "'>'", "$END": "the end", "WITHOUT_ZONE": "WITHOUT TIME ZONE", "WITH_ZONE": "", "ORDINALITY": "",
    "WITH_LOCAL_ZONE": "WITH LOCAL TIME ZONE", "SIMILAR": "", "HEADER": "", "PERIOD": "", "QUANTIFIER": "",
    "JSON_OBJECT": "", "_FETCH": "FETCH",
}  # fmt: skip


_OF_JSON: Final = {
    "JSON_NULLS", "JSON_RESULT", "JSON_WRAPPER", "RETURNING", "DEFAULT", "VALUE", "PLACING",
}  # fmt: skip
"""The words that can follow an argument of a few functions only."""


_QUOTES: Final = dict.fromkeys("‘’‚‛′", "'")  # noqa: RUF001 - what editors make of single quotes
_TAKEN_FOR_ALIAS: Final = re.compile(
    r"\bMATCH_RECOGNIZE\b|\b(?:UN)?PIVOT(?=\s*\()|\b(?:QUALIFY|TABLESAMPLE|ILIKE|OVERLAPS|USE|JAR|MODULE)(?=\s*\(?\s*$)"
    r"|\bWITHIN(?=\s+GROUP\s*$)|(?<=\bSELECT\s)TOP(?=\s*$)",
    re.IGNORECASE,
)
"""Words that are refused, and were taken for a name: only what follows is wrong."""


def _described(source: Source, error: UnexpectedInput) -> SqlError:
    start = error.pos_in_stream or 0
    is_token = isinstance(error, UnexpectedToken) and not source.text.startswith("/*", start)
    if not is_token and (unended := _unended(source, start)) is not None:
        return unended
    if isinstance(error, UnexpectedCharacters):
        return _of_character(source, error, start)
    if not isinstance(error, UnexpectedToken) or error.token.type == "$END":
        expected = _expected(cast(Any, error).accepts or cast(Any, error).expected, "")
        end = len(source.text.rstrip())
        return source.error(f"the statement is not complete: expected {expected}", Span(max(0, end - 1), end))
    token = error.token
    span = Span(start, start + len(token))
    if (refused := REFUSED.get(token.upper())) is not None:
        return source.error(refused, span)
    if (form := message_for(source.text[: span.end])) is not None:
        return source.error(form[0], Span(form[1], span.end))
    if found := _TAKEN_FOR_ALIAS.search(source.text, 0, start):
        return source.error(REFUSED[found[0].upper()], Span(found.start(), found.end()))
    accepted = error.accepts or error.expected
    text = source.shown(span)
    if token.type in RESERVED and text == token and _OF_NAMES & accepted:
        hint = f"{text.upper()} is a reserved word; as a name it is written `{text}`"
        return source.error(f"unexpected {text}: expected {_expected(accepted, text)}. {hint}", span)
    hint = _meant(text, accepted) or _misspelt_before(source, start, accepted)
    return source.error(f"unexpected {text}: expected {_expected(accepted, text)}{hint}", span)


def _unended(source: Source, start: int) -> SqlError | None:
    """The error for text that begins here and does not end, or is not SQL's."""
    rest = source.text[start:]
    for pattern, message in (
        (r"'", "the string does not end: a single quote is missing"),
        (r"`", "the name does not end: a backquote is missing"),
        (r"\{", "the name does not end: '}' is missing"),
        (r"/\*\+", "hints are not supported: give options in WITH (...) or by SET"),
        (r"/\*", "the comment does not end: */ is missing"),
        (r'"', "double quotes are not SQL's: strings are in 'single quotes', names in `backquotes`"),
    ):
        if re.match(pattern, rest):
            return source.error(message, Span(start, start + 1))
    return None


def _of_character(source: Source, error: UnexpectedCharacters, start: int) -> SqlError:
    rest = source.text[start:]
    word = re.match(r"\w+|.", rest, re.S)
    span = Span(start, start + max(1, len(word[0]) if word else 0))
    text = source.shown(span)
    if (refused := REFUSED.get(text.upper())) is not None:
        return source.error(refused, span)
    if rest.startswith("&'") and source.text[:start].upper().endswith("U"):
        return source.error(UNICODE, Span(start - 1, start + 2))
    for sign, refused in OPERATORS.items():
        if rest.startswith(sign):
            return source.error(refused, Span(start, start + len(sign)))
    expected = _expected(set(error.allowed or ()), text)
    plain = _QUOTES.get(text) or unicodedata.normalize("NFKC", text)
    hint = f": did you mean {plain!r}?" if plain != text and plain.isascii() else _meant(text, error.allowed or set())
    return source.error(f"unexpected {text!r}: expected {expected}{hint}", span)


def _expected(accepted: Any, found: str) -> str:
    """Returns what the parser could take, in the order in which it helps: names and values, then keywords."""
    accepted = set(accepted)
    phrases = []
    if accepted >= _OF_VALUES and _OF_NAMES & accepted:
        phrases.append("an expression")
        accepted = accepted & {"RPAR", "STAR", "FROM"}
    elif _OF_NAMES & accepted:
        phrases.append("a name")
    if accepted >= _OF_OPERATORS:
        phrases.append("an operator")
        accepted -= {"IS", "IN", "BETWEEN", "LIKE", "NOT", "AND", "OR", "DOT", "LSQB", "STAR", "EQUAL"}
    accepted -= {"DATE", "TIME", "TIMESTAMP", "KEY", "COMMENT", "VIEW", "FINAL", "LESSTHAN", "MORETHAN", *_OF_NAMES}
    accepted -= _OF_JSON if "RPAR" in accepted else _OF_JSON - {"VALUE"}
    shown = {_SHOWN.get(each, each) for each in accepted if not each.startswith("__")}
    words = sorted(
        each for each in shown if each and each[0] != "'" and each not in (_SHOWN["STRING"], "PLUS", "MINUS")
    )
    signs = sorted(each for each in shown if each and each[0] == "'")
    words = [each for each in words if each not in ("SLASH", "PERCENT")]
    if _SHOWN["STRING"] in shown:
        phrases.append(_SHOWN["STRING"])
    phrases += [*signs, *(words if len(words) <= 8 else [*words[:8], "..."])]
    return listed(phrases) if phrases else "nothing more"


def _meant(text: str, accepted: Any) -> str:
    keywords = {each for each in accepted if each.isalpha() and each not in _SHOWN}
    return nearest(text.upper(), keywords) if len(text) > 2 else ""


_LONGEST_BEFORE: Final = 200


def _misspelt_before(source: Source, start: int, accepted: Any) -> str:
    """`SELECT a FORM t`: FORM was taken for an alias, and only what follows is wrong."""
    before = source.shown(Span(max(0, start - _LONGEST_BEFORE), start))  # the search in a long text is quadratic
    word = re.search(r"\b(\w+)\s*$", before)
    if word is None or word[1].upper() in RESERVED or len(word[1]) < 3:
        return ""
    keywords = [each for each in accepted if each.isalpha() and each not in _SHOWN]
    found = hints.nearest(word[1].upper(), keywords, cutoff=0.7)
    return f": did you mean {found!r} instead of {word[1]!r}?" if found else ""


# For completion: the keywords and names that can follow a text that is not complete.

_WORDS: Final = {
    "PHASE": ("BEFORE", "AFTER"), "ROWS": ("ROWS", "RANGE"), "SIMILAR": ("SIMILAR TO",), "LIKE": ("LIKE", "RLIKE"),
    "CAST": ("CAST(", "TRY_CAST("), "WITHOUT_ZONE": ("WITHOUT TIME ZONE",), "WITH_ZONE": (), "WITH_LOCAL_ZONE": (),
    "ORDINALITY": ("WITH ORDINALITY",), "HEADER": (), "PERIOD": (), "GROUPING_SETS": ("GROUPING SETS (",),
    "QUANTIFIER": ("ANY (", "SOME (", "ALL ("), "_FETCH": ("FETCH FIRST",),
}  # fmt: skip
"""Terminals that are no keyword of their name."""


class Expected(NamedTuple):
    """The words that can follow.

    Attributes:
      keywords: in upper case.
      is_name: a name can follow.
      is_value: a value can: a column, a function, a constant.
    """

    keywords: frozenset[str]
    is_name: bool
    is_value: bool


def expected_after(text: str) -> Expected | None:
    """Returns what can follow the beginning of a statement; None: the text is not the beginning of one."""
    parser = _parser().parse_interactive(text)
    try:
        with deep_trees():
            for _ in parser.iter_parse():
                pass
            accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    except (UnexpectedInput, Refusal, RecursionError):
        return None
    keywords = {word for each in accepted for word in _WORDS.get(each, (each,) if each in _keywords() else ())}
    return Expected(frozenset(keywords), "WORD" in accepted, "NUMBER" in accepted and "WORD" in accepted)


def _keywords() -> frozenset[str]:
    return frozenset(
        each.name for each in _parser().terminals if each.name.isalpha() and each.pattern.value.upper() == each.name
    )
