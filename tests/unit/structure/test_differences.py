"""`differences.toml`: each difference from Flink has a reason that can be looked up, and they become no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from tests.helpers.oracles.differences import CALLS, QUERIES, Entry, unexplained
from tests.helpers.oracles.flink import Difference

ROOT: Final = Path(__file__).parents[3]
MOST: Final = 71
"""The entries that there are. It may only fall, but for a difference that a page says."""


def test_they_become_no_more() -> None:
    assert len(CALLS) + len(QUERIES) == MOST


def test_none_is_about_the_values_of_all_calls() -> None:
    wide = [each for each in (*CALLS, *QUERIES) if re.fullmatch(each.differs, "value") and each.form.startswith(".*")]
    assert [each for each in wide if not each.says] == []


def part_of(page: Path, anchor: str) -> str:
    """The text below a heading, with single spaces, up to the next heading."""
    _, *parts = re.split(r"^#+ ", page.read_text("utf-8"), flags=re.MULTILINE)
    texts = dict(each.partition("\n")[::2] for each in parts)
    found = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-"): text for heading, text in texts.items()}
    return " ".join(found[anchor].split())


@pytest.mark.parametrize("entry", [*CALLS, *QUERIES], ids=lambda entry: f"{entry.differs}: {entry.form} {entry.says}")
def test_the_reason_can_be_looked_up(entry: Entry) -> None:
    if entry.reason.startswith("docs/"):
        page, _, anchor = entry.reason.partition("#")
        assert entry.phrase
        assert entry.phrase in part_of(ROOT / page, anchor)
    else:
        assert not entry.phrase
        assert re.match(r"FLINK-\d+$|outside the model: \w", entry.reason)


_TOO_LONG: Final = "Failed(reason='CAST(m AS DECIMAL(4, 2)): 12345.67 has too many digits for DECIMAL(4, 2)') | None"
_NO_FORMAT: Final = "Failed(reason=\"PRINTF(c0): PRINTF: '%z' at character 7 of the format is not supported\") | None"
_BEYOND: Final = "Failed(reason='StringIndexOutOfBoundsException: begin 2147483647, end 2, length 2')"
_NO_TIME: Final = "Failed(reason='java.time.DateTimeException: Invalid time format: a')"


@pytest.mark.parametrize(
    ("form", "kind", "detail", "is_explained"),
    [
        ("FLOOR(CAST(m AS DECIMAL(4, 2)))", "fails here", _TOO_LONG, True),
        ("(d * CAST(m AS DECIMAL(4, 2)))", "fails here", _TOO_LONG, True),
        ("COALESCE(CAST(m AS DECIMAL(4, 2)), 1.5)", "fails here", _TOO_LONG.replace("None", "1.50"), True),
        ("FLOOR(CAST(m AS DECIMAL(4, 2)))", "fails here", _TOO_LONG.replace("(4, 2)')", "(4, 3)')"), False),
        ("FLOOR(CAST(m AS DECIMAL(4, 2)))", "fails here", "Failed(reason='CAST(m AS INT): it failed') | None", False),
        ("(STRING, 1) IN ((TIMESTAMP(3), 1))", "value", "True | False", True),
        ("(CHAR(3), 1) IN ((DATE, 1))", "value", "None | False", True),
        ("(STRING, 1) IN ((DATE, 1))", "value", "False | True", False),
        ("(TIMESTAMP(3), 1) IN ((STRING, 1))", "value", "True | False", False),
        ("INT IN (DOUBLE)", "value", "False | True", True),
        ("(BIGINT, 1) IN ((DECIMAL(5, 2), 1))", "value", "False | None", True),
        ("INT IN (DOUBLE)", "value", "True | False", False),
        ("DOUBLE IN (INT)", "value", "False | True", False),
        ("EXTRACT(EPOCH FROM TIMESTAMP(3))", "value", "1 | 2", False),
        ("PRINTF(STRING)", "fails here", _NO_FORMAT, True),
        ("PRINTF(STRING)", "fails here", _NO_FORMAT.replace("None", "a"), False),
        ("PRINTF(STRING)", "fails here", "Failed(reason='PRINTF(c0): it failed') | None", False),
        ("OVERLAY(STRING PLACING 'x' FROM INT FOR -1)", "fails in Flink", "a | " + _BEYOND, True),
        ("OVERLAY(STRING PLACING 'x' FROM INT FOR -1)", "fails in Flink", "a | NullPointerException", False),
        ("(DATE, DATE) OVERLAPS (DATE, DATE)", "refused here", "line 1:23: OVERLAPS is not supported: ...", True),
        ("(DATE, DATE) OVERLAPS (DATE, DATE)", "refused here", "there is no function X", False),
        ("TIME BETWEEN STRING AND TIME", "fails in Flink", "None | " + _NO_TIME, True),
        ("TIME BETWEEN STRING AND TIME", "fails in Flink", "True | " + _NO_TIME, False),
        ("STRING < DATE", "fails in Flink", "None | " + _NO_TIME, True),
        ("CAST(STRING AS TIMESTAMP(3))", "fails in Flink", "None | " + _NO_TIME, False),
        ("ABS(DOUBLE)", "fails in Flink", "nan | NumberFormatException: Character N", False),
    ],
)
def test_an_entry_is_about_its_form_only(form: str, kind: str, detail: str, is_explained: bool) -> None:
    assert (not unexplained(CALLS, [Difference(form, kind, detail)])) == is_explained
