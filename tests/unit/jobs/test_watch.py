"""Looks at a folder: what is settled, what is still being written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.jobs.state import Changes, Watch, overlooked, scan, wrong_name


def offered(changes: Changes) -> dict[str, bytes | None]:
    return {name: found.text for name, found in changes.offered.items()}


def test_a_file_that_is_being_written_waits_until_two_looks_see_the_same(tmp_path: Path) -> None:
    watch, path = Watch(tmp_path), tmp_path / "a.sql"
    for text in ("SEL", "SELECT", "SELECT 1"):
        path.write_text(text)
        assert watch.look() == Changes()
    assert offered(watch.look()) == {"a": b"SELECT 1"}
    assert watch.look() == Changes()


def test_a_change_is_seen_by_its_content_and_not_by_its_time(tmp_path: Path) -> None:
    watch, path = Watch(tmp_path), tmp_path / "a.sql"
    path.write_text("one")
    times = path.stat()
    watch.look()
    watch.look()
    os.utime(path)
    assert [watch.look(), watch.look()] == [Changes(), Changes()]
    path.write_text("two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [offered(watch.look()), offered(watch.look())] == [{}, {"a": b"two"}]


def test_an_editor_that_replaces_a_file_removes_no_job(tmp_path: Path) -> None:
    watch, path = Watch(tmp_path), tmp_path / "a.sql"
    path.write_text("one")
    watch.look()
    watch.look()
    path.unlink()
    assert watch.look().removed == []
    path.write_text("two")
    assert [watch.look().removed, offered(watch.look())] == [[], {"a": b"two"}]
    path.unlink()
    assert [watch.look().removed, watch.look().removed, watch.look().removed] == [[], ["a"], []]


def test_two_levels_are_jobs_and_hidden_ones_are_none(tmp_path: Path) -> None:
    for name in ("a.sql", "b.txt", ".c.sql", "g/a.sql", "g/.b.sql", "g/h/a.sql", ".rmqio/a.sql", "d.sql/e.sql"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "away.sql").symlink_to("nowhere")
    found = scan(tmp_path)
    assert {name: each.text for name, each in found.items()} == {
        "a": b"a.sql",
        "away": None,
        "d.sql/e": b"d.sql/e.sql",
        "g/a": b"g/a.sql",
    }
    assert found["away"].error == f"cannot read {tmp_path / 'away.sql'}: No such file or directory"


def test_what_looks_like_the_file_of_a_job_and_is_none(tmp_path: Path) -> None:
    named = {
        "ignored: the name of a job's file ends in .sql": ("b.SQL", "g/c.Sql"),
        "ignored: jobs are files of the folder and of its folders": ("g/h/a.sql", "g/h/i/a.SQL"),
    }
    others = (
        "a.sql",
        "b.txt",
        "g/a.sql",
        ".c.SQL",
        ".h/i/a.sql",
        "g/.h/a.sql",
        "g/h/.a.sql",
        "state/a/job.sql",
        "g/h/a.py",
    )
    for name in (*others, *(each for names in named.values() for each in names)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "g/h/again").symlink_to(tmp_path)
    found = overlooked(tmp_path, tmp_path / "state")
    assert {str(each.relative_to(tmp_path)) for each in found} == {each for names in named.values() for each in names}
    for reason, names in named.items():
        assert all(reason in found[tmp_path / each] for each in names)
    assert overlooked(tmp_path / "g", tmp_path / "g/.rmqio").keys() == {tmp_path / "g/c.Sql", tmp_path / "g/h/i/a.SQL"}


@pytest.mark.parametrize("name", ["a", "a.b", "a_b-c", "温度", "g/a", "1"])
def test_names_of_jobs(name: str) -> None:
    assert wrong_name(name) == ""


@pytest.mark.parametrize("name", ["a b", "a+b", "-a", "", "g h/a", "g/-a", "a\n"])
def test_other_names(name: str) -> None:
    assert wrong_name(name).startswith("the name of a job is made of letters")
