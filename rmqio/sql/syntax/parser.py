"""Parses a script: text to statements, and errors that say what was expected."""

from __future__ import annotations

import difflib
import functools
import re
import unicodedata
from importlib import resources
from typing import Any, Final, cast

from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.exceptions import VisitError

from rmqio.sql.errors import Refusal, Source, Span, SqlError, listed, nearest
from rmqio.sql.recursion import deep_trees
from rmqio.sql.secret_options import PARSERS
from rmqio.sql.syntax import statements
from rmqio.sql.syntax.builder import Builder
from rmqio.sql.syntax.other_forms import OPERATORS, UNICODE, message_for
from rmqio.sql.syntax.refused_words import REFUSED
from rmqio.sql.syntax.tables import parser_of

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
    found = difflib.get_close_matches(word[1].upper(), keywords, n=1, cutoff=0.7)
    return f": did you mean {found[0]!r} instead of {word[1]!r}?" if found else ""
