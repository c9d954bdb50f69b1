"""The parser's tables in a file: the parser is the same, and a file that is damaged is replaced."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from lark import Lark, UnexpectedInput

from rmqio.sql.syntax.parser import parser_of

GRAMMAR = resources.files("rmqio.sql.syntax").joinpath("grammar.lark").read_text("utf-8")
TEXTS = (
    "SELECT a, `b` FROM t WHERE a > 1 AND NOT b LIKE 'x%' ORDER BY a LIMIT 3",
    "CREATE TABLE t (a INT, WATERMARK FOR at AS at - INTERVAL '1' SECOND) WITH ('topic' = 't')",
    "INSERT INTO t SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY k",
    "WITH w AS (SELECT 1) SELECT * FROM w LEFT JOIN u ON w.a = u.a UNION ALL SELECT CASE WHEN a THEN 1 END FROM v",
)
WRONG = "SELECT a FROM t WHERE )"


def parser(folder: Path, grammar: str = GRAMMAR, **more: bool) -> Lark:
    return parser_of(grammar, {}, folder=folder, start="script", parser="lalr", lexer="contextual", **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lark, Path]:
    """A parser that was made of the grammar, and its file."""
    folder = tmp_path_factory.mktemp("tables")
    return parser(folder), folder / "grammar.json"


def test_a_parser_of_a_file_is_the_one_of_the_grammar(made: tuple[Lark, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    made_, file = made
    monkeypatch.setattr("rmqio.sql.syntax.parser.Lark.__init__", None)  # none is made of the grammar
    kept = parser(file.parent)
    assert [kept.parse(text) for text in TEXTS] == [made_.parse(text) for text in TEXTS]
    assert {each.name for each in kept.terminals} == {each.name for each in made_.terminals}
    assert kept.parse_interactive("SELECT a").accepts() == made_.parse_interactive("SELECT a").accepts()
    errors = []
    for each in (kept, made_):
        with pytest.raises(UnexpectedInput) as caught:
            each.parse(WRONG)
        errors.append((str(caught.value), caught.value.pos_in_stream))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: b"",
        lambda whole: b"[]",
        lambda whole: whole.replace(b'"states"', b'"stages"'),
        lambda whole: whole.replace(b'"#"', b'"?"'),
    ],
    ids=["half", "empty", "a list", "another name", "other keys"],
)
def test_a_damaged_file_is_replaced(
    made: tuple[Lark, Path], damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, file = made[1].read_bytes(), tmp_path / "grammar.json"
    file.write_bytes(damage(whole))
    assert file.read_bytes() != whole
    assert parser(tmp_path).parse(TEXTS[0]) == made[0].parse(TEXTS[0])
    monkeypatch.setattr("rmqio.sql.syntax.parser.Lark.__init__", None)
    assert parser(tmp_path).parse(TEXTS[0]) == made[0].parse(TEXTS[0])
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_another_grammar_or_option_has_a_parser_of_its_own(made: tuple[Lark, Path], tmp_path: Path) -> None:
    (tmp_path / "grammar.json").write_bytes(made[1].read_bytes())
    assert parser(tmp_path, 'script: "a"').parse("a").data == "script"
    assert parser(tmp_path, propagate_positions=True).parse(TEXTS[0]).meta.column == 1


def test_a_folder_that_cannot_be_made_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert parser(tmp_path / "file").parse(TEXTS[0])
