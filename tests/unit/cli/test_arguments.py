"""The command line's options: where they may stand, how wrong ones are reported, how fast the help is there."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from rmqio.cli.main import main, make_parser, parse
from rmqio.cli.schemas import LEVELS
from rmqio.command_line.arguments import QueueName, parse_from, parse_queue, parse_to
from rmqio.command_line.cluster import attended_options
from rmqio.command_line.parser import Parser
from rmqio.options import NAME_SERVER_VARIABLE
from rmqio.security import EnvironmentCredentials
from rmqio.serde.avro.compatibility import Level
from rmqio.start import Position


def parsed(line: str) -> argparse.Namespace:
    return parse(make_parser(), line.split())


@pytest.mark.parametrize(
    "line",
    [
        "--name_server h:1 --timeout_ms 5 describe orders --group g",
        "describe orders --group g --name_server h:1 --timeout_ms 5",
        "--timeout-ms=5 describe --name-server=h:1 orders --group g",
    ],
)
def test_connection_options_stand_before_or_after_the_command(line: str) -> None:
    found = parsed(line)
    options = attended_options(found)
    assert (found.topic, found.group) == ("orders", "g")
    assert (options.name_servers, options.request_timeout_ms, options.connect_timeout_ms) == (("h:1",), 5, 5)


def test_what_clients_are_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY"):
        monkeypatch.setenv(name, "x")
    options = attended_options(parsed("topics --name_server h:1 --namespace prod --credentials environment --tls"))
    assert options.namespace == "prod"
    assert options.security.source == EnvironmentCredentials()
    assert options.security.tls is not None
    assert attended_options(parsed("topics --name_server h:1")).security.source is None


def test_hyphens_behind_a_double_hyphen_are_a_body() -> None:
    found = parsed("produce orders --sharding-key k -- --delay-level")
    assert (found.sharding_key, found.body, found.delay_level) == ("k", "--delay-level", None)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pek orders", "rmqio: 'pek' is not one of topics, groups, describe, peek, tail, find, trace, produce, "),
        ("pek orders", "completion; did you mean peek? (see rmqio --help)"),
        ("offsets shw orders", "rmqio offsets: 'shw' is not one of show, reset; did you mean show?"),
        ("topics creat orders", "unknown argument 'orders'; did you mean `rmqio topics create`?"),
        ("topics update orders", "there is nothing to change: add --queues, --permission or another option"),
        ("topics create o --permission rx", "'rx' is not one of rw, r, w"),
        ("topics create o --message_type FIF", "'FIF' is not one of NORMAL, FIFO, "),
        ("completion bsh", "'bsh' is not one of bash, zsh, fish; did you mean bash?"),
        ("describe orders --watch=0", "argument --watch: '0' is not a number of seconds from 0.1 to 86400"),
        ("peek orders --quee b:1", "rmqio peek: unknown argument '--quee'; did you mean --queue?"),
        ("peek orders --name_servr=h:1", "unknown argument '--name_servr'; did you mean --name_server?"),
        ("peek orders more", "rmqio peek: unknown argument 'more'"),
        ("peek orders -n 0", "number '0' is not a whole number of at least 1"),
        ("peek orders --offset=-1", "offset '-1' is not a whole number"),
        ("peek orders --offset 1 --from 10m", "not allowed with argument --offset"),
        ("peek orders --queue b:x", "queue 'b:x' is not BROKER:ID, e.g. broker-a:3"),
        ("peek orders --from yesterday", "'yesterday' is not earliest, latest or a TIME like 10m or 2026-01-31T"),
        ("peek orders --from latst", "; did you mean latest?"),
        ("sql job.sql --stopp latest", "rmqio sql: unknown argument '--stopp'; did you mean --stop? (see rmqio sql"),
        ("sql job.sql --runner SparkRunner --streamin", "'--streamin'; did you mean --streaming?"),
        ("sql --parallelism 4 no.sql", "rmqio sql: cannot read no.sql: No such file or directory"),
        ("sql --checkpoint_dir d no.sql --stop latest", "rmqio sql: cannot read no.sql: No such file or directory"),
        ("sql --parallelism", "rmqio sql: argument --parallelism: expected one argument"),
        ("sql no.sql --checkpoint_dir --streaming", "rmqio sql: argument --checkpoint_dir: expected one argument"),
        ("sql --parallelism --runner Direct", "rmqio sql: argument --parallelism: expected one argument"),
        ("sql --streaming no.sql", "rmqio sql: cannot read no.sql: No such file or directory"),
        ("sql --jobs d --checkpoint-dr=x", "'--checkpoint-dr'; did you mean --checkpoint_dir?"),
        ("sql ps --jbos d", "rmqio sql ps: unknown argument '--jbos'; did you mean --jobs? (see rmqio sql ps --help)"),
        ("copy --from a:b --to c:d --folow", "rmqio copy: unknown argument '--folow'; did you mean --follow?"),
        ("audit --from_topc a --to_topic b", "unknown argument '--from_topc'; did you mean --from_topic?"),
        ("peek orders --from 10x", "time '10x' is neither ISO 8601"),
        ("peek orders --from 2026-01-31T12:00", "has no time zone; add one"),
        ("produce or.ders x", "rmqio produce: argument TOPIC: topic name 'or.ders' is illegal: only letters, digits, "),
        ("peek or.ders", "rmqio peek: argument TOPIC: topic name 'or.ders' is illegal"),
        ("topics create or.ders", "rmqio topics create: argument TOPIC: topic name 'or.ders' is illegal"),
        ("describe orders --group g.1", "rmqio describe: argument --group: group name 'g.1' is illegal"),
        ("offsets reset orders --group g.1 --to latest", "argument --group: group name 'g.1' is illegal"),
        (
            "audit --from_topic or.ders --to_topic b",
            "rmqio audit: argument --from_topic: topic name 'or.ders' is illegal",
        ),
        ("watch --topic or.ders", "rmqio watch: argument --topic: topic name 'or.ders' is illegal"),
        ("replay --dead_letter_topic or.ders", "argument --dead_letter_topic: topic name 'or.ders' is illegal"),
        ("produce orders x --property a=", "property 'a=' is not NAME=VALUE"),
        ("offsets reset orders --group g --to 1 --dry_run --execute", "not allowed with argument"),
        ("peek orders --body xml", "'xml' is not one of auto, text, json, hex, none"),
    ],
)
def test_wrong_usage_is_one_line(line: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert captured.err.count("\n") == 1


def test_a_misspelt_option_does_not_wait_for_beam() -> None:
    work = "import sys; from rmqio.cli.main import main; main(sys.argv[1:]); sys.exit('apache_beam' in sys.modules)"
    for line in (
        "sql job.sql --stopp latest",
        "copy --from a:b --to c:d --stremaing",
        "copy --from x.jsonl --to out/?format=csvv",
    ):
        done = subprocess.run([sys.executable, "-c", work, *line.split()], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("did you mean")) == (0, 1), done.stderr


@pytest.mark.parametrize(
    ("line", "status", "expected"),
    [
        ("topics", 2, "rmqio: no name server given: --name_server HOST:9876, or set NAMESRV_ADDR"),
        ("topics --name_server here", 2, "argument --name_server: address 'here' is not host:port"),
        ("topics --name_server h:1 --tls_key_file x", 2, "--tls_key_file has no effect without"),
        ("topics --name_server 127.0.0.1:1 --timeout_ms 200", 1, "127.0.0.1:1"),
        ("topics --name_server h:1 --credentials file:/none", 2, "credentials: cannot read /none: No such file"),
        ("produce a b --name_server h:1 --credentials file:/none", 2, "credentials: cannot read /none: No such file"),
        (
            "topics --name_server h:1 --tls_ca_file /none",
            2,
            "TLS: cannot read the certificate authorities in /none: No",
        ),
        (
            "peek a --name_server h:1 --tls_certificate_file /none",
            2,
            "TLS: cannot use the certificate in /none: No such",
        ),
        ("peek a --name_server h:1 --credentials function:none:f", 2, "credentials: cannot import 'none:f'"),
    ],
)
def test_what_is_wrong_with_the_name_server(
    line: str, status: int, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAME_SERVER_VARIABLE, raising=False)
    assert main(line.split()) == status
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "--name_server", "h:1", "--credentials", "file:/none", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "usage", "missing"),
    [
        ("describe", "rmqio describe TOPIC [OPTIONS]", "TOPIC is missing"),
        ("offsets", "rmqio offsets show|reset ...", "COMMAND is missing"),
        ("schemas", "rmqio schemas check|list ...", "COMMAND is missing"),
        ("topics delete", "rmqio topics delete TOPIC [OPTIONS]", "TOPIC is missing"),
        ("produce", "rmqio produce TOPIC BODY [OPTIONS]", "TOPIC and BODY are missing"),
        ("offsets reset orders", "rmqio offsets reset TOPIC --group GROUP --to WHERE [OPTIONS]",
         "--group and --to are missing"),
        ("replay", "rmqio replay --dead_letter_topic TOPIC [OPTIONS]", "--dead_letter_topic is missing"),
        ("completion", "rmqio completion SHELL [OPTIONS]", "SHELL is missing"),
    ],
)  # fmt: skip
def test_what_is_missing_is_reported_alike(
    line: str, usage: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    program = usage.split(" [")[0]
    name = " ".join(word for word in program.split() if word.islower() and "|" not in word and "-" not in word)
    assert capsys.readouterr() == ("", f"usage: {usage}\n{name}: {missing} (see {name} --help)\n")


def test_schemas_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith("rmqio.serde.avro")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastavro", None)  # so that importing it fails
    assert main(["schemas", "check", "."]) == 2
    assert capsys.readouterr().err == "rmqio schemas: rmqio.serde.avro needs fastavro: pip install 'rmqio[avro]'\n"


def test_schemas_knows_every_level() -> None:
    assert tuple(Level) == LEVELS


def helps(parser: Parser) -> Iterator[str]:
    yield parser.format_help()
    for command in parser.commands.values():
        yield from helps(command)


def test_every_help_fits_80_columns_and_the_first_one_a_screen() -> None:
    whole = list(helps(make_parser()))
    assert len(whole) == 36
    assert [line for text in whole for line in text.splitlines() if len(line) > 80] == []
    assert len(whole[0].splitlines()) < 30
    assert "==SUPPRESS==" not in "".join(whole)


def test_an_option_with_an_optional_value_takes_it_after_an_equals_sign_only() -> None:
    assert parsed("describe --watch orders").watch == 2
    assert parsed("describe --watch=0.5 orders").watch == 0.5
    assert parsed("describe orders").watch is None


@pytest.mark.parametrize(
    ("line", "name", "pattern"),
    [
        ("topics", "_topics", None),
        ("topics order*", "_topics", "order*"),
        ("topics -l creates", "_topics", "creates"),
        ("topics create orders", "_create", None),
        ("--timeout_ms 5 topics --timeout_ms 6 create orders", "_create", None),
        ("topics -- create", "_topics", "create"),  # a topic of that name
    ],
)
def test_topics_lists_unless_a_command_is_named(line: str, name: str, pattern: str | None) -> None:
    found = parsed(line)
    assert found.run.__name__ == name
    assert getattr(found, "pattern", None) == pattern


def test_connection_options_have_a_help_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("--help_connection", "peek --help-connection"):  # also where arguments are missing
        assert main(line.split()) == 0
        out = capsys.readouterr().out
        assert all(word in out for word in ("--name_server", "--timeout_ms", "--tls_ca_file", "--credentials"))
        assert [line for line in out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("module", ["replay", "local"])
def test_a_program_has_the_same_options_under_both_names(module: str) -> None:
    """`python -m rmqio.replay` and `rmqio replay`."""
    done = subprocess.run([sys.executable, "-m", f"rmqio.{module}", "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    ours = make_parser().commands[module].format_help()
    options = set(re.findall(r"--\w+", ours.partition("options:")[2])) - {"--help_connection"}
    assert options <= set(re.findall(r"--\w+", done.stdout))
    assert f"usage: python -m rmqio.{module} " in done.stdout


@pytest.mark.parametrize("line", ["", "--help", "peek --help", "topics create --help", "offsets --help", "--version"])
def test_help_is_no_failure(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    out = capsys.readouterr().out
    assert out.startswith(("usage: rmqio", "rmqio "))
    assert "==SUPPRESS==" not in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position("earliest")),
        ("latest", Position("latest")),
        ("1700000000000", Position("time", 1_700_000_000_000)),
        ("timestamp:1700000000000", Position("time", 1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", Position("time", 1_700_000_000_000)),
        ("2023-11-15T06:13:20.001+08:00", Position("time", 1_700_000_000_001)),
    ],
)
def test_positions(text: str, expected: Position) -> None:
    assert parse_from(text) == expected


def test_so_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    ago = [parse_from(text).value for text in ("30s", "10m", "2h", "7d")]
    assert ago == [999_970_000, 999_400_000, 992_800_000, 395_200_000]


def test_a_bare_number_is_an_offset_where_that_can_be_meant() -> None:
    assert parse_to("1200") == Position("offset", 1_200)
    assert parse_to("timestamp:1200") == Position("time", 1_200)


def test_queues() -> None:
    assert parse_queue("broker-a:3") == QueueName("broker-a", 3)
    assert parse_queue("3") == QueueName(None, 3)


HEAVY = (
    "apache_beam", "pyspark", "grpc", "fastavro", "requests", "tqdm", "lz4", "zstandard",
    "rmqio.client", "rmqio.wire", "rmqio.serde", "rmqio.local", "rmqio.dead_letters",
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("--help", ()),
        ("peek --help", ()),
        ("topics create --help", ()),
        ("replay --help", ("lz4", "zstandard", "rmqio.client", "rmqio.wire", "rmqio.dead_letters")),
        ("schemas --help", ("requests", "rmqio.serde")),
        ("local --help", ("requests", "lz4", "zstandard", "rmqio.client", "rmqio.wire", "rmqio.local")),
    ],
)
def test_help_needs_neither_beam_nor_a_client(line: str, needed: tuple[str, ...]) -> None:
    program = (
        f"import sys; from rmqio.cli.main import main; main({line.split()!r}); "
        f"print(*sorted(m for m in sys.modules if m.startswith({HEAVY!r})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert [module for module in loaded if not module.startswith(needed or ("none",))] == []


@pytest.mark.parametrize("file", ["my table/no.sql", "/data/with us/x.sql", "a; b.sql"])
def test_a_file_with_blanks_in_its_name_is_no_statement(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", file]) == 2
    assert capsys.readouterr().err.startswith(f"rmqio sql: cannot read {file}: No such file or directory")


@pytest.mark.parametrize(
    "before",
    [
        "sql", "sql --check", "sql --explain", "sql -e x", "sql x.sql", "sql --runner", "sql --start", "sql --catalog",
        "sql --jobs", "sql --name_server", "", "peek", "offsets", "copy --to - --from", "topics --colour=",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (a INT) WITH ('password'='Sesame')",
        "CREATE TABLE t (a INT)\nWITH ('password' = 'it\"s, Sesame; x')",
        "set db.password = Sesame",
        "SELECT 1; STE x 'Sesame'",
        "('password' = 'Sesame')",
    ],
)
def test_a_statement_in_the_place_of_an_argument_is_not_shown(
    before: str, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = before.split()
    argv = [*words[:-1], words[-1] + statement] if before.endswith("=") else [*words, statement]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert "Sesame" not in error
    assert error.count("\n") == 1
    if before in ("sql", "sql --check", "sql -e x"):
        assert error.startswith(
            "rmqio sql: a statement is given in place of an argument: write -e in front of it (see "
        )
