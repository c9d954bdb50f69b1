"""Logs: rotated, followed, and the line that says why a job has ended."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")

from rmqio.jobs.command import jobs_table
from rmqio.jobs.process import Log, follow, last_lines
from rmqio.jobs.state import Status


def test_a_full_log_becomes_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "job" / "log"
    log = Log(path, most=100)
    for number in range(60):
        log.write(b"line %06d\n" % number)  # 12 bytes
    log.close()
    files = sorted(each.name for each in path.parent.iterdir())
    assert files == ["log", "log.1", "log.2"]
    assert all((path.parent / each).stat().st_size <= 100 for each in files)
    assert list(last_lines(path, 6)) == [b"line %06d\n" % number for number in range(54, 60)]
    assert list(last_lines(path, 0)) == []


def test_only_its_owner_can_read_a_log(tmp_path: Path) -> None:
    """Also that of an older version, and the files before it."""
    path = tmp_path / "log"
    for name in ("log", "log.1", "log.2"):
        (tmp_path / name).write_text("older\n")
        (tmp_path / name).chmod(0o644)
    log = Log(path, most=30)
    log.write(b"a line\n")
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes == {"log": 0o600, "log.1": 0o600, "log.2": 0o600}
    log.write(b"a line of some length\n")
    log.close()
    assert (tmp_path / "log.1").read_bytes() == b"older\na line\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_of_another_owner_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:  # as the system does, but not to root
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.chmod", refuse)
    monkeypatch.setattr("os.fchmod", refuse)
    log = Log(tmp_path / "log")
    log.write(b"a line\n")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"a line\n"


def test_a_log_is_followed_over_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    log = Log(path, most=110)
    log.write(b"what was there before\n")
    written = b"".join(b"line %06d\n" % number for number in range(8))

    def written_in_a_pause() -> Iterator[None]:
        log.write(written)  # into a new file
        yield
        log.write(b"after\n")
        yield

    pauses = written_in_a_pause()
    monkeypatch.setattr("rmqio.jobs.process.time", SimpleNamespace(sleep=lambda _: next(pauses)))
    lines, found = follow(path), b""
    while not found.endswith(b"after\n"):
        found += next(lines)
    assert isinstance(lines, Generator)
    lines.close()
    log.close()
    assert found == written + b"after\n"


def test_the_error_of_a_job_is_its_last_line_of_ours(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.write(b"rmqio sql: an earlier one\n")
    log.begin()
    log.note("started")
    assert log.error() == ""
    log.write(b"Traceback\nValueError: x\n")
    assert log.error() == "ValueError: x"
    log.write(b"rmqio sql: the broker is away\nWARN shutdown\n")
    assert log.error() == "rmqio sql: the broker is away"
    log.close()


def test_the_table_shows_refusals_and_errors_below_their_job() -> None:
    statuses = [
        Status("orders", "running", 1_700_000_000.0, 2, 17, "ended with status 1: x", "a.sql:1:1: no\n  SELECT\n  ^"),
        Status("温度/a", "stopped", 1_700_000_000.0),
    ]
    assert jobs_table(statuses) == (
        "job     state    since                 restarts  pid\n"
        "orders  running  2023-11-14 22:13:20Z  2         17\n"
        "  refused: a.sql:1:1: no\n"
        "  last error: ended with status 1: x\n"
        "温度/a  stopped  2023-11-14 22:13:20Z  0         -"
    )
    assert jobs_table([]) == "job  state  since  restarts  pid"
