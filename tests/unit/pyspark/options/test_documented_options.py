"""The options of the format `rocketmq`: docs/pyspark.md lists those that reading and writing take, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the format rocketmq needs the extra 'spark'")

from rmqio.pyspark import options as write_options
from rmqio.pyspark import read_options as options

PAGE = (Path(__file__).parents[4] / "docs" / "pyspark.md").read_text()


@pytest.mark.parametrize(
    ("heading", "names"),
    [("Options of reading", options.READ_NAMES), ("Options of writing", write_options.WRITE_NAMES)],
)
def test_the_table_has_the_options_that_the_code_takes(heading: str, names: tuple[str, ...]) -> None:
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    first_cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_cells))) == sorted(names)
