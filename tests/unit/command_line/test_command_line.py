"""The common part of command lines: positions, options in both spellings, the width of text."""

from __future__ import annotations

import argparse

import pytest

from rmqio.command_line.arguments import add_connection, client_options, parse_selector, position_parser, whole_number
from rmqio.command_line.output import cut, display_width, with_short_words
from rmqio.command_line.parser import Parser
from rmqio.errors import LocalError
from rmqio.hints import did_you_mean
from rmqio.options import NAME_SERVER_VARIABLE
from rmqio.start import Position

EVERY = position_parser("earliest", "latest", "none", "group", "group:RESET", "timestamp:TIME")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position("earliest")),
        ("none", Position("none")),
        ("group", Position("group")),
        ("group:latest", Position("group", reset="latest")),
        ("1700000000000", Position("time", 1_700_000_000_000)),
        ("timestamp:1700000000000", Position("time", 1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Position("time", 1_700_000_000_000)),
    ],
)
def test_one_grammar_for_every_position(text: str, expected: Position) -> None:
    assert EVERY(text) == expected


@pytest.mark.parametrize(
    ("kinds", "text", "message"),
    [
        (("earliest", "latest"), "latst", "'latst' is not earliest or latest; did you mean latest?"),
        (("earliest", "latest"), "10m", "'10m' is not earliest or latest"),
        (("earliest", "timestamp:TIME"), "soon", "'soon' is not earliest or a TIME like 10m or 2026-01-31T12:00:00Z"),
        (("earliest", "timestamp:TIME"), "10 m", "time '10 m' is neither ISO 8601"),
        (("earliest", "group"), "group:latest", "'group:latest' is not earliest or group"),
        (("earliest", "group", "group:RESET"), "group:newest", "group:earliest, group:latest, group:error"),
    ],
)
def test_what_is_no_position(kinds: tuple[str, ...], text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as told:
        position_parser(*kinds)(text)
    assert message in str(told.value)


@pytest.mark.parametrize(
    "text",
    [
        "a IS NOT NULL",
        "a = 'it''s'",
        "a > 1 -- c",
        "a IN ('(')",
        "a = ')' AND (b = '(')",
        "a > 1 /* ( */",
        "a BETWEEN 1 AND 2",
        "a > +1",
        "not a = true",
        "a > 1)",  # a broker reads no further than the expression
    ],
)
def test_what_a_broker_compiles_is_taken(text: str) -> None:
    assert parse_selector(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9" * 5_000, "from 1 to 18"),
        ("19", "level '19' is not a whole number from 1 to 18"),
        ("0", "level '0' is not a whole number from 1 to 18"),
        ("\u0663", "is not a whole number"),
    ],
)
def test_what_is_no_number_of_a_range(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as told:
        whole_number("level", 1, 18)(text)
    assert message in str(told.value)


def test_very_long_words_are_cut_in_messages() -> None:
    word = "x\n" + "y" * 500
    for said in (word, repr(word)):
        told = with_short_words(f"{said} is wrong", ["--a", f"--option={word}"])
        assert len(told) < 230
        assert told.endswith(" is wrong")
    assert with_short_words("y" * 500, ["y"]) == "y" * 500


def parser() -> Parser:
    made = Parser(prog="tool")
    made.add_argument("word", metavar="WORD")
    made.add_argument("--data_dir", metavar="DIR")
    made.add_argument("--broker-port", type=int, metavar="PORT")
    made.add_argument("--watch", nargs="?", const=2, type=float, metavar="SECONDS")
    return made


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("w --data-dir d --broker_port 5", ("w", "d", 5, None)),
        ("--data_dir=a-b --broker-port=5 w", ("w", "a-b", 5, None)),
        ("--watch w", ("w", None, None, 2.0)),
        ("w --watch=0.5", ("w", None, None, 0.5)),
        ("-- --data-dir", ("--data-dir", None, None, None)),
    ],
)
def test_both_spellings_of_options(line: str, expected: tuple[object, ...]) -> None:
    found = parser().parse(line.split())
    assert (found.word, found.data_dir, found.broker_port, found.watch) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "usage: tool WORD [OPTIONS]\ntool: WORD is missing (see tool --help)\n"),
        ("w --data-dri d", "tool: unknown argument '--data-dri'; did you mean --data_dir? (see tool --help)\n"),
        ("w more", "tool: unknown argument 'more' (see tool --help)\n"),
        ("w --broker-port x", "tool: argument --broker-port: invalid int value: 'x' (see tool --help)\n"),
    ],
)
def test_errors_are_short(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse(line.split())
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", message)


def test_a_parser_is_filled_when_it_is_needed() -> None:
    filled = []

    def fill(command: Parser) -> None:
        filled.append(command.prog)
        command.add_argument("--level", metavar="N")

    made = Parser(prog="tool")
    commands = made.add_subparsers(metavar="COMMAND")
    for name in ("one", "two"):
        commands.add_parser(name, help=name, fill=fill)
    assert "one" in made.format_help()
    assert filled == []
    assert made.parse(["two", "--level", "3"]).level == "3"
    assert made.commands["two"].format_usage() == "usage: tool two [OPTIONS]\n"
    assert filled == ["tool two"]


def test_a_paragraph_of_help_is_wrapped_and_an_example_is_not() -> None:
    made = Parser(prog="tool", description="word " * 40, epilog="examples:\n  tool " + "x" * 90)
    lines = made.format_help().splitlines()
    assert sum(line.startswith("word word") for line in lines) == 3
    assert f"  tool {'x' * 90}" in lines


def test_connection_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAME_SERVER_VARIABLE, raising=False)
    made = Parser(prog="tool")
    add_connection(made)
    found = made.parse(["--name-server", "h:1", "--namespace", "n", "--timeout_ms", "5", "--tls"])
    options = client_options(found)
    assert (options.name_servers, options.namespace, options.request_timeout_ms) == (("h:1",), "n", 5)
    assert options.security.tls is not None
    with pytest.raises(LocalError, match="no name server given: --name_server HOST:9876, or set NAMESRV_ADDR"):
        client_options(made.parse([]))


def test_the_nearest_name() -> None:
    assert did_you_mean("ordres", ["orders", "payments"]) == "; did you mean orders?"
    assert did_you_mean("x", ["orders"]) == ""


def test_text_is_measured_and_cut_as_a_terminal_shows_it() -> None:
    assert [display_width(text) for text in ("abc", "杭州", "Zürich")] == [3, 4, 6]
    assert cut("one\n two", 80) == "one two"
    assert cut("x" * 80, 80) == "x" * 80
    assert cut("x" * 81, 80) == "x" * 76 + " ..."
    assert cut("杭" * 41, 80) == "杭" * 38 + " ..."
