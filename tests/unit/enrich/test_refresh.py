"""Tables of a process: loaded once, loaded again, and given up."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")
import pyarrow as pa
import pyarrow.parquet as pq

from rmqio.enrich import Table, refresh, store
from rmqio.enrich.refresh import Schedule, acquire, close_all
from rmqio.enrich.store import Wanted, default_folder
from rmqio.enrich.table import hashing
from rmqio.enrich.table.rows import Spec
from rmqio.errors import LocalError
from tests.helpers.imports import ROOT
from tests.helpers.waiting import at_most, until

SPEC = Spec(("id",))


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    close_all()


def write(folder: Path, value: int, *, count: int = 100) -> None:
    """Puts a table with one value in all rows where the old one is."""
    pq.write_table(pa.table({"id": list(range(count)), "v": [value] * count}), folder / "new.tmp")
    os.replace(folder / "new.tmp", folder / "rows.parquet")


def wanted(folder: Path, **kept: Any) -> Wanted:
    return Wanted(Table.from_parquet(str(folder / "rows.parquet"), cache_dir=str(folder / "cache"), **kept), SPEC)


def test_readers_see_whole_versions_while_it_is_loaded_again(tmp_path: Path) -> None:
    write(tmp_path, 0)
    lease = acquire(wanted(tmp_path), Schedule(0.05))
    first = lease.rows()
    stopped = threading.Event()
    mixed: list[set[int]] = []
    seen: set[int] = set()

    def read() -> None:
        while not stopped.is_set():
            values = {row[0] for row in lease.rows().get(list(range(100)))}
            seen.update(values)
            if len(values) != 1:
                mixed.append(values)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for each in threads:
        each.start()
    until(lambda: 0 in seen, "a reader that saw the first value")
    for value in range(1, 6):
        write(tmp_path, value, count=100 + value)  # another size: the clock of files can be coarse
        until(lambda value=value: lease.rows().get_one(0) == (value,), "the new value")  # type: ignore[misc]
    until(lambda: 5 in seen, "a reader that saw the last value")
    stopped.set()
    for each in threads:
        each.join()
    assert not mixed
    assert first.get_one(7) == (0,), "who has begun with a version keeps it"


def test_a_failed_load_keeps_the_rows_until_they_are_too_old(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 1)
    kept = acquire(wanted(tmp_path), Schedule(0.05))
    failing = acquire(wanted(tmp_path), Schedule(0.05, on_error="fail"))
    aging = acquire(wanted(tmp_path), Schedule(0.05, 3_600))
    assert [each.rows().get_one(1) for each in (kept, failing, aging)] == [(1,)] * 3
    (tmp_path / "rows.parquet").unlink()
    aging._shared._clock = lambda: time.time() + 7_200

    def fails(lease: Any, message: str) -> bool:
        try:
            lease.rows()
        except LocalError as error:
            return message in str(error)
        return False

    until(lambda: fails(failing, "cannot be loaded again: there is no file"), "an error of the failed load")
    until(lambda: fails(aging, "s old, and max_age_s is 3,600"), "an error of rows that are too old")
    assert kept.rows().get_one(1) == (1,)
    until(lambda: caplog.text.count("its last version stays") >= 3, "a word on each table")
    write(tmp_path, 2, count=7)
    until(lambda: not fails(failing, "") and failing.rows().get_one(1) == (2,), "the rows of the new file")
    assert caplog.text.count("its last version stays") == 3, "once for each table, not for each try"


def test_a_refresh_can_be_as_good_as_never(tmp_path: Path) -> None:
    """Threads cannot wait for more than 292 years at once. pytest tells of one that fails."""
    write(tmp_path, 3)
    shown = f"refresh {tmp_path}"
    lease = acquire(wanted(tmp_path), Schedule(float("inf")))
    assert lease.rows().get_one(0) == (3,)
    (thread,) = [each for each in threading.enumerate() if each.name.startswith(shown[:60])]

    def waits() -> bool:
        frame = sys._current_frames().get(thread.ident or 0)
        return frame is not None and frame.f_code is threading.Condition.wait.__code__

    until(lambda: waits() or not thread.is_alive(), "a thread that waits")
    close_all()
    thread.join()


def test_a_first_load_that_fails_fails_the_start(tmp_path: Path) -> None:
    lease = acquire(wanted(tmp_path), Schedule())
    with pytest.raises(LocalError, match=r"cannot be loaded: there is no file .*rows\.parquet"):
        lease.rows()
    write(tmp_path, 3)
    assert lease.rows().get_one(0) == (3,)


def test_the_first_process_of_a_machine_builds(tmp_path: Path) -> None:
    write(tmp_path, 4, count=20_000)
    code = f"""
import logging, pathlib, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from rmqio.enrich import Table
from rmqio.enrich.store import Wanted, load
from rmqio.enrich.table import hashing
from rmqio.enrich.table.rows import Spec
table = Table.from_parquet({str(tmp_path / "rows.parquet")!r}, cache_dir={str(tmp_path / "cache")!r})
print(load(Wanted(table, Spec(("id",))), newer_than=0)[1].get_one(5))
"""
    made = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    texts = [each.communicate(timeout=at_most(120))[0] for each in made]
    assert all("(4,)" in each for each in texts)
    assert sum("20000 rows" in each for each in texts) == 1


def test_harm_to_the_files_is_repaired_by_building_again(tmp_path: Path) -> None:
    write(tmp_path, 5)
    pointer, table = store.load(wanted(tmp_path), newer_than=0)
    with open(table.folder / "starts.bin", "r+b") as file:
        file.seek(40)
        file.write(b"\xff\xff\xff\x00")
    again, table = store.load(wanted(tmp_path), newer_than=0)
    assert again.version == pointer.version
    assert table.get_one(99) == (5,)
    (table.folder.parent / "current.json").write_text("{")
    assert store.load(wanted(tmp_path), newer_than=0)[1].get_one(99) == (5,)


@pytest.mark.parametrize("where", ["cache_dir", "shared_dir"])
def test_versions_with_another_hash_build_a_table_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """While a cluster is updated, both run."""
    write(tmp_path, 5)
    caplog.set_level("INFO")
    for turn, name in enumerate(["rmqio-mix-1", hashing.NAME] * 2):
        monkeypatch.setattr(hashing, "NAME", name)
        folders = {"cache_dir": str(tmp_path / "cache"), where: str(tmp_path / "all")}
        if where == "shared_dir":
            folders["cache_dir"] += str(turn)
        table = Table.from_parquet(str(tmp_path / "rows.parquet"), **folders)
        assert store.load(Wanted(table, SPEC), newer_than=0)[1].get_one(99) == (5,)
    assert caplog.text.count("100 rows") == 2


def test_machines_copy_what_one_has_built(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 6)
    caplog.set_level("INFO")
    folders = []
    for machine in ("one", "two"):
        table = Table.from_parquet(
            str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / machine), shared_dir=str(tmp_path / "all")
        )
        found = store.load(Wanted(table, SPEC), newer_than=0)[1]
        assert found.get_one(3) == (6,)
        folders.append(found.folder)
    assert folders[0] != folders[1]
    assert caplog.text.count("100 rows") == 1
    shared = next((tmp_path / "all").glob("*/*/rows.arrow"))
    shared.write_bytes(b"torn")
    table = Table.from_parquet(
        str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "three"), shared_dir=str(tmp_path / "all")
    )
    killed = Wanted(table, SPEC).store().folder  # of a process that was killed while it copied
    (killed / "new-1").mkdir()
    (killed / "new-1" / "rows.arrow").write_bytes(b"torn")
    (killed / "current.json.1").write_text("{")
    assert store.load(Wanted(table, SPEC), newer_than=0)[1].get_one(3) == (6,)
    assert "is built again" in caplog.text
    assert not [*killed.glob("new-*"), *killed.glob("current.json.*")]


@pytest.mark.parametrize("more", [(), ("shared",)], ids=["one machine", "a folder of several machines"])
def test_a_build_that_is_killed_at_any_point_leaves_a_whole_version(tmp_path: Path, more: tuple[str, ...]) -> None:
    """The old one, or the new one; and the next build leaves nothing of it."""
    program = [sys.executable, "-m", "tests.helpers.pipelines.killed_build", str(tmp_path), "3", *more]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    *killed, whole = map(json.loads, ended.stdout.splitlines())
    assert whole == {"status": 0, "after": [2], "rebuilt": [2], "left": []}
    assert len(killed) > 20
    for each in killed:
        assert each["status"] == signal.SIGKILL
        assert each["after"] in ([1], [2])
        assert (each["rebuilt"], each["left"]) == ([2], [])
    assert [each["after"] for each in killed] == sorted(each["after"] for each in killed)


def test_rows_that_another_machine_has_built_are_as_new_as_the_answer_of_the_source(tmp_path: Path) -> None:
    write(tmp_path, 6)
    table = Table.from_parquet(
        str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "one"), shared_dir=str(tmp_path / "all")
    )
    store.load(Wanted(table, SPEC), newer_than=0)
    shared = Wanted(table, SPEC).shared()
    assert shared is not None
    pointer = shared.pointer()
    assert pointer is not None
    shared.point(dataclasses.replace(pointer, checked_at=time.time() - 86_400))  # it was a day ago
    there = acquire(Wanted(table.replace(cache_dir=str(tmp_path / "two")), SPEC), Schedule(max_age_s=7_200))
    assert there.rows().get_one(3) == (6,)


def test_a_full_disk_is_found_before_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1)
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr("rmqio.enrich.store.shutil.disk_usage", lambda _: usage)
    with pytest.raises(LocalError, match=r"has 1 MB left, and a new version .* set cache_dir"):
        store.load(wanted(tmp_path), newer_than=0)


def test_an_old_version_is_removed_and_its_map_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqio.enrich.store._GRACE_S", -1.0)
    write(tmp_path, 1)
    _, old = store.load(wanted(tmp_path), newer_than=0)
    write(tmp_path, 2, count=9)
    _, new = store.load(wanted(tmp_path), newer_than=time.time())
    assert not old.folder.exists()
    assert (old.get_one(99), new.get_one(1)) == ((1,), (2,))


def test_a_version_that_was_just_replaced_can_still_be_opened(tmp_path: Path) -> None:
    write(tmp_path, 1)
    pointer, old = store.load(wanted(tmp_path), newer_than=0)
    os.utime(old.folder, (1, 1))  # it was made long ago
    write(tmp_path, 2, count=9)
    store.load(wanted(tmp_path), newer_than=time.time())
    assert wanted(tmp_path).store().opened(pointer).get_one(99) == (1,)


def test_files_that_have_changed_before_the_start_are_loaded_whatever_the_cache_has(tmp_path: Path) -> None:
    write(tmp_path, 1)
    assert acquire(wanted(tmp_path), Schedule(None)).rows().get_one(1) == (1,)
    close_all()
    write(tmp_path, 2, count=9)
    assert acquire(wanted(tmp_path), Schedule(None)).rows().get_one(1) == (2,)


def test_without_a_home_tables_are_with_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").touch()  # a file: nothing can be made in it
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "home" / name))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    beside = tmp_path / f"rmqio-{os.getuid()}"
    assert default_folder() == beside / "enrich"
    assert beside.stat().st_mode & 0o777 == 0o700
    beside.chmod(0o777)  # somebody else could put a table there
    with pytest.raises(LocalError, match=r"is another user's: set cache_dir"):
        default_folder()
    beside.rmdir()
    beside.symlink_to(tmp_path)
    with pytest.raises(LocalError, match="another user's"):
        default_folder()


def test_after_a_fork_the_child_has_tables_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, 8)
    lease = acquire(wanted(tmp_path), Schedule(0.05))
    assert lease.rows().get_one(1) == (8,)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert not refresh._tables
            code = 0 if acquire(wanted(tmp_path), Schedule(0.05)).rows().get_one(1) == (8,) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
