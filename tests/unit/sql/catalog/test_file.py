"""A catalog in a file keeps what was created, as it was typed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.catalog_file import CatalogFile
from rmqio.sql.scripts.script import Script

TABLE = "CREATE TABLE t (a INT) -- a comment;\nWITH ('topic' = 't')"


def loaded(file: CatalogFile) -> Script:
    script = Script()
    file.load(script)
    return script


@pytest.fixture
def file(tmp_path: Path) -> CatalogFile:
    return CatalogFile(tmp_path / "folder" / "catalog.sql")


def test_what_is_added_is_there_and_what_is_removed_is_not(file: CatalogFile) -> None:
    assert not loaded(file).catalog.tables
    file.add("TABLE", "t", TABLE)
    file.add("VIEW", "v", "CREATE VIEW v AS SELECT a FROM t")
    file.add("TABLE", "u", "CREATE TABLE u (b INT) WITH ('topic' = 'u')")
    found = loaded(file).catalog
    assert list(found.tables) == ["t", "u"]
    assert list(found.views) == ["v"]
    assert TABLE in file.path.read_text()
    assert file.path.stat().st_mode & 0o077 == 0
    file.remove("VIEW", "v")
    file.remove("TABLE", "t")
    file.remove("TABLE", "nothing")
    found = loaded(file).catalog
    assert list(found.tables) == ["u"]
    assert not found.views


def test_the_rest_of_a_file_stays_as_it_is(file: CatalogFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text("-- mine\ncreate  table t (a int) with (topic='t') -- ; not the end\n;\n-- last; one\nCREATE "
                         "TABLE u (a INT) WITH ('topic' = 'u')")  # fmt: skip
    file.path.chmod(0o644)
    file.add("VIEW", "v", "CREATE VIEW v AS SELECT a FROM t")
    assert list(loaded(file).catalog.tables) == ["t", "u"]
    file.remove("TABLE", "t")
    assert file.path.read_text() == (
        "-- mine\n\n-- last; one\nCREATE TABLE u (a INT) WITH ('topic' = 'u')\n;\n\nCREATE VIEW v AS SELECT a FROM t;\n"
    )
    assert file.path.stat().st_mode & 0o777 == 0o644


def test_a_link_stays_one(file: CatalogFile, tmp_path: Path) -> None:
    target = tmp_path / "real.sql"
    target.write_text("")
    file.path.parent.mkdir()
    file.path.symlink_to(target)
    file.add("TABLE", "t", TABLE)
    assert file.path.is_symlink()
    assert TABLE in target.read_text()


def test_two_programs_lose_nothing(file: CatalogFile) -> None:
    def add(part: int) -> None:
        for number in range(10):
            name = f"t{part}_{number}"
            file.add("TABLE", name, f"CREATE TABLE {name} (a INT) WITH ('topic' = 't')")

    threads = [threading.Thread(target=add, args=(part,)) for part in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(loaded(file).catalog.tables) == 40


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO a SELECT 1", ":1:1: a catalog has CREATE TABLE, CREATE VIEW and CREATE FUNCTION only"),
        ("\n  SELECT 1;", ":2:3: a catalog has CREATE TABLE, CREATE VIEW and CREATE FUNCTION only"),
        ("CREATE TABLE t (a NOTHING) WITH ('topic' = 't')", ":1:19: NOTHING is not a type"),
        ("CREATE TABEL t", ":1:8: unexpected TABEL"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(file: CatalogFile, text: str, message: str) -> None:
    file.path.parent.mkdir()
    file.path.write_text(text)
    with pytest.raises(SqlError) as caught:
        loaded(file)
    assert str(caught.value).startswith(f"{file.path}{message}")


def test_a_name_is_added_once(file: CatalogFile) -> None:
    file.add("TABLE", "t", TABLE)
    with pytest.raises(SqlError, match="has a table t already"):
        file.add("TABLE", "t", TABLE)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SqlError, match="cannot write the catalog"):
        CatalogFile(tmp_path / "file" / "catalog.sql").add("TABLE", "t", TABLE)


def test_an_error_in_a_view_of_a_catalog_is_shown_there(file: CatalogFile) -> None:
    file.add("VIEW", "v", "CREATE VIEW v AS\n  SELECT a FROM gone")
    script = loaded(file)
    with pytest.raises(SqlError) as caught:
        script.run("CREATE TABLE s (a INT) WITH ('topic' = 's');\nINSERT INTO s SELECT a FROM v", "job.sql")
    assert str(caught.value) == (
        f"{file.path}:4:17: there is no table gone; there are s, v\n    SELECT a FROM gone;\n                  ^^^^"
    )
