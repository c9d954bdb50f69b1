"""The corpus of invalid statements: each is refused with the whole message that `invalid.txt` says, at its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from tests.unit.sql.endings import run_endless

LEAST: Final = 300
_TEXT: Final = (Path(__file__).parent / "invalid.txt").read_text()
_SECTION: Final = re.compile(r"^\[(tables|invalid) (\w+)\]\n(.*?)(?=^\[(?:tables|invalid) \w+\]\n|\Z)", re.M | re.S)
_CASE: Final = re.compile(r"(.*?)\n=> ([^\n]*)\n\^\^ ?([^\n]*)\n*", re.S)


class Case(NamedTuple):
    tables: str
    statement: str
    message: str
    marked: str


def cases() -> Iterator[Case]:
    tables = ""
    for kind, _, text in _SECTION.findall(_TEXT):
        if kind == "tables":
            tables = text.strip()
            continue
        found = _CASE.findall(text)
        assert "\n".join(f"{s}\n=> {m}\n^^ {c}" for s, m, c in found).split() == text.split(), "a case is cut off"
        for statement, message, marked in found:
            yield Case(tables, statement.strip(), message, marked)


CASES: Final = list(cases())


def test_there_are_enough_and_no_two_have_one_cause() -> None:
    assert len({each.statement for each in CASES}) >= LEAST
    assert len({each.message for each in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[each.statement[:80] for each in CASES])
def test_it_is_refused_with_this_message(case: Case) -> None:
    with pytest.raises(SqlError) as caught:
        run_endless(f"{case.tables}\n{case.statement}", "job.sql")
    shown = caught.value.shown.split("\n")
    start, count = (shown[-1].index("^"), shown[-1].count("^")) if len(shown) > 1 else (0, 0)
    marked = shown[-2][start : start + count] if count else ""
    is_cut = count and shown[-2][start + count :] == "..."  # the part of a long line that is shown ends before the mark
    assert (caught.value.message, marked) == (case.message, case.marked[:count] if is_cut else case.marked)
