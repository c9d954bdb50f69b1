"""The completion scripts, in the shells themselves; the parser is their only source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqio.cli.completion import SCRIPTS, commands_of
from rmqio.cli.main import main, make_parser
from tests.helpers.waiting import at_most

COMMANDS = tuple(commands_of(make_parser()))

# Calls the script's function as bash does, and prints what it found.
BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_rmqio
printf '%s\\n' "${COMPREPLY[@]}"
"""

# The functions of zsh's completion system print what they are given: outside of its line editor they do not work.
ZSH = """
compdef() { : }
compset() { : }
compadd() { shift; print -l -- $@ }
_files() { print -l -- *(N) }
_describe() { [[ $1 == -o ]] && shift; shift; print -l -- ${${(P)1}%%:*} }
source "$1"; shift
words=("$@"); CURRENT=$#words
_rmqio
"""


PROGRAM = """#!/bin/sh
case "$1 $2" in
    topics*) printf 'orders\\npayments\\n' ;;
    "groups --names") printf 'billing\\nbackup\\n' ;;
esac
"""


def bash(script: Path, words: list[str], folder: Path) -> list[str]:
    return run(["bash", "--norc", "-c", BASH, "bash", str(script), *words], folder)


def zsh(script: Path, words: list[str], folder: Path) -> list[str]:
    return run(["zsh", "-f", "-c", ZSH, "zsh", str(script), *words], folder)


def fish(script: Path, words: list[str], folder: Path) -> list[str]:
    line = " ".join(words)
    found = run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], folder)
    return [each.partition("\t")[0] for each in found]


def run(command: list[str], folder: Path) -> list[str]:
    """The lines that a shell prints, where `rmqio` is a program that knows two topics and two groups."""
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=at_most(60), check=False
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "rmqio"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (tmp_path / "order.avsc").write_text("{}")
    return tmp_path


CASES = [
    (
        "",
        "topics groups describe peek tail find trace produce offsets watch "
        "sql rules copy replay audit claims schemas local completion",
    ),
    ("to", "topics"),
    ("--name_server h:1 offsets ", "show reset"),
    ("--name_server topics of", "offsets"),  # the name of a command as a value
    ("topics cr", "create"),
    ("peek ", "orders payments"),
    ("peek pay", "payments"),
    ("peek orders --body h", "hex"),
    ("topics create orders --message_type TR", "TRANSACTION"),
    ("topics create x --ord", "--order"),
    ("topics create ", ""),
    ("offsets reset orders --group g --ex", "--execute"),
    ("replay --dead_letter_topic or", "orders"),
    ("replay --to pay", "payments"),
    ("offsets reset orders --to ", ""),  # any value
    ("schemas check --level backward_", "backward_transitive"),
    ("completion z", "zsh"),
    ("describe orders --group bi", "billing"),
    ("offsets show orders --group ", "backup billing"),
    ("watch --topic or", "orders"),
    ("watch --topic orders --group bi", "billing"),
    ("groups ba", "backup"),
    ("replay --consumer_group bi", "billing"),
    ("peek orders --avro_schema or", "order.avsc"),
]


@pytest.mark.parametrize("shell", [bash, zsh, fish])
@pytest.mark.parametrize(("line", "expected"), CASES, ids=[line for line, _ in CASES])
def test_what_a_shell_completes(
    shell: Callable[[Path, list[str], Path], list[str]], line: str, expected: str, folder: Path
) -> None:
    name = shell.__name__
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    script = folder / "script"
    script.write_text(SCRIPTS[name](COMMANDS))
    words = ["rmqio", *line.split(" ")]
    found = shell(script, words, folder)
    if shell is zsh:  # which chooses among what it is given by itself
        found = [each for each in found if each.startswith(words[-1])]
    assert sorted(found) == sorted(expected.split())


def test_a_value_after_an_equals_sign_in_bash(folder: Path) -> None:
    """Bash makes a word of its own of the sign."""
    script = folder / "script"
    script.write_text(SCRIPTS["bash"](COMMANDS))
    assert bash(script, ["rmqio", "peek", "orders", "--body", "=", "j"], folder) == ["json"]
    assert bash(script, ["rmqio", "--namespace", "=", "topics", "of"], folder) == ["offsets"]


def test_every_command_is_there_with_its_options() -> None:
    words = {command.words for command in COMMANDS}
    assert {"", "topics", "topics create", "offsets reset", "replay", "schemas check", "local"} <= words
    for command in COMMANDS:
        assert all(word.help for word in command.options), command.words


def test_no_option_takes_a_value_in_one_command_and_none_in_another() -> None:
    """The scripts skip a value before they know the command."""
    kinds: dict[str, set[bool]] = {}
    for command in COMMANDS:
        for word in command.options:
            for name in word.names:
                kinds.setdefault(name, set()).add(word.kind == "flag")
    assert {name for name, both in kinds.items() if len(both) == 2} == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out.rstrip("\n") == SCRIPTS[shell](COMMANDS)


def test_it_needs_neither_beam_nor_what_an_extra_installs() -> None:
    program = (
        "import sys; sys.modules['fastavro'] = None; from rmqio.cli.main import main; "
        "assert main(['completion', 'bash']) == 0; assert not {'apache_beam', 'pyspark'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True)
