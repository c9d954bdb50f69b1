"""README's table of what runners do is that of `rmqio.runners.capabilities`, and each test of it is there and runs."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the tests of the Spark runner cannot be looked at without it")

from rmqio.runners.capabilities import TABLE, Cell, Mode, Need
from tests.helpers.named_tests import ROOT, problem


def table() -> str:
    """As README has it: each cell is a link to the first test that shows it."""
    links: dict[str, str] = {}

    def shown(cell: Cell) -> str:
        if not cell.tests:
            return cell.verdict.value
        return f"[{cell.verdict.value}][{links.setdefault(cell.tests[0], f't{len(links) + 1}')}]"

    rows = [["", *(mode.value for mode in Mode)], ["---"] * (len(Mode) + 1)]
    rows += [[need.value, *map(shown, row.values())] for need, row in TABLE.items()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    parts = ((link, *test.split("::", 1)) for test, link in links.items())
    return "\n".join([*lines, "", *(f'[{link}]: {file} "{name}"' for link, file, name in parts)])


def test_readme_has_the_table() -> None:
    assert table() in (ROOT / "README.md").read_text(), f"README.md must have:\n\n{table()}"


@pytest.mark.parametrize(
    ("need", "mode", "test"),
    [(need, mode, test) for need, row in TABLE.items() for mode, cell in row.items() for test in cell.tests],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_test_that_is_named_is_collected_and_not_skipped(need: Need, mode: Mode, test: str) -> None:
    assert problem(test) is None
