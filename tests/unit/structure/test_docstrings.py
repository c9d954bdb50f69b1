"""Docstrings say what a thing is or does: none begins with a bare What, Of or Where. Those of tests, too.

Outside tests and benchmarks, no sentence of a docstring does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = ("rmqio", "runners", "pipelines", "schemas", "pyspark_rocketmq", "tests", "bench", "docs/tools")
_BARE: Final = re.compile(r'^\s*"""((?:What|Of|Where|Who|Whose|Whom|Which|That|Those)\b.*)', re.MULTILINE)
SENTENCES_OF: Final = ("rmqio", "runners", "pipelines", "schemas", "pyspark_rocketmq", "docs/tools")
_END: Final = re.compile(r"(?<=[.:!?])\)?\s+|\n\s*\n")
_CLAUSE: Final = re.compile(r"(?:- )?(?:What|Of|Where|Who|Whose|Whom|Which)\b")


def bare(text: str) -> list[str]:
    return _BARE.findall(text)


def clauses(text: str) -> Iterator[str]:
    """Yields the sentences that begin with a bare clause, of docstrings and of those of attributes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for sentence in _END.split(node.value.value):
                if _CLAUSE.match(sentence.strip()):
                    yield " ".join(sentence.split())


def test_no_docstring_begins_with_a_bare_clause() -> None:
    files = [ROOT / "setup.py", *(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))]
    assert len(files) > 800
    assert [f"{file.relative_to(ROOT)}: {found}" for file in files for found in bare(file.read_text())] == []


def test_no_sentence_of_a_docstring_begins_with_a_bare_clause() -> None:
    files = [file for package in SENTENCES_OF for file in (ROOT / package).rglob("*.py")]
    assert len(files) > 600
    assert [f"{file.relative_to(ROOT)}: {found}" for file in files for found in clauses(file.read_text())] == []


def test_a_bare_clause_is_found() -> None:
    assert bare('def f():\n    """What a call needs.\n') == ["What a call needs."]
    assert bare('    """Whether it is there."""\n    """Offsets of a queue."""\n') == []


def test_a_sentence_with_a_bare_clause_is_found() -> None:
    text = "Sends it. Of these,\n    one is kept (see g). What waits: Which one.\n\n    Where it is: there."
    found = ["Of these, one is kept (see g).", "What waits:", "Which one.", "Where it is:"]
    assert list(clauses(f'def f():\n    """{text}"""\n')) == found
    assert list(clauses(f'x = 1\n"""{text}"""\n')) == found
    assert list(clauses('x = """Of these. What is it."""\n')) == []
    assert list(clauses('"""Says what it is, and where: of which part. Whatever it is."""\n')) == []
