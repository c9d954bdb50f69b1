"""A program of the documents takes its runner from the command line: without options, Beam ignores `--runner`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.helpers.doc_blocks import BLOCKS, ROOT

_MADE: Final = re.compile(r'\bPipeline\((?!options=options\((?:runner_options|\["--runner=\w+"\])?\))')
_OF_TESTS: Final = ("docs/api/testing.md",)
"""Pages whose blocks are of tests: their command line is that of pytest."""


def _programs() -> Iterator[tuple[str, str]]:
    """Yields the place and the text of what users copy."""
    for block in BLOCKS:
        if block.page not in _OF_TESTS:
            yield f"{block.page}:{block.line}", block.code
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text()
    for folder in ("rmqio", "pipelines", "pyspark_rocketmq"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "Pipeline(" in (text := path.read_text()):
                yield str(path.relative_to(ROOT)), "\n".join(_docstrings(text))


def _docstrings(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def ignoring(text: str) -> list[str]:
    """Returns the lines that make a pipeline with neither the options of the command line nor a runner."""
    return [line.strip() for line in text.splitlines() if _MADE.search(line)]


def test_every_pipeline_takes_the_options_of_the_command_line() -> None:
    found = {place: text for place, text in _programs() if "Pipeline(" in text}
    assert len(found) > 40
    assert {place: lines for place, text in found.items() if (lines := ignoring(text))} == {}


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("with beam.Pipeline() as p:", 1),
        ("p = beam.Pipeline(options=options([]))", 1),
        ("p = beam.Pipeline('DirectRunner')", 1),
        ("p = beam.Pipeline(options=PipelineOptions())", 1),
        ("with beam.Pipeline(options=options()) as p:", 0),
        ('with beam.Pipeline(options=options(["--runner=SparkRunner"])) as p:', 0),
        ("with beam.Pipeline(options=options(runner_options)) as p:", 0),
    ],
)
def test_a_pipeline_that_ignores_them_is_found(code: str, count: int) -> None:
    assert len(ignoring(code)) == count
