"""`rmqio claims clean` on folders with any name, in Beam's file systems: local, HDFS and object stores.

HDFS and the object store are doubles below Beam: its own `HadoopFileSystem` on a client in memory, and its own `match`.
"""

from __future__ import annotations

import datetime
import io
import posixpath
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystem import FileMetadata, FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from rmqio import ClaimCheck, Message
from rmqio.claims import clean
from rmqio.claims.check import ClaimStoreError
from rmqio.claims.cleaning import remove
from rmqio.claims.store import ClaimStore
from rmqio.errors import LocalError

BIG = b"big" * 1_000
NOON_S = datetime.datetime(2026, 3, 5, 12, tzinfo=datetime.UTC).timestamp()
WEEK_S = 7 * 86_400
HDFS = ["--hdfs_host=namenode", "--hdfs_port=9870", "--hdfs_user=claims"]
NAMES = ["claims[1]", "[claims]", "claims*", "cl?ims", "a[!b]/claims", "[[]", "claims]"]


def put(folder: str, *, days_ago: int = 30) -> None:
    ClaimStore(ClaimCheck(folder, above_bytes=10), clock=lambda: NOON_S - days_ago * 86_400).put(Message(BIG))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", NAMES)
def test_a_local_folder_can_have_any_name(name: str, tmp_path: Path) -> None:
    folder, others = tmp_path / name, [tmp_path / other for other in ("claims1", "claims", "c", "claims2", "ab/claims")]
    for each in (folder, *others):
        put(str(each))
    put(str(folder), days_ago=1)
    plan = clean(str(folder), older_than_s=WEEK_S, now_s=NOON_S, dry_run=True)
    assert (plan.objects, plan.bytes, plan.days) == (1, len(BIG), ("2026-02-03",))
    assert len(files(folder)) == 2
    assert clean(str(folder), older_than_s=WEEK_S, now_s=NOON_S) == plan
    assert [path.parent.name for path in files(folder)] == ["2026-03-04"]
    assert [len(files(other)) for other in others] == [1] * len(others), "those of others stay"


def test_links_are_not_followed(tmp_path: Path) -> None:
    put(str(tmp_path / "claims"))
    (there,) = files(tmp_path)
    link = there.with_name("0" * 64)
    link.symlink_to(there)
    assert clean(str(tmp_path / "claims"), older_than_s=WEEK_S, now_s=NOON_S).objects == 1
    assert link.is_symlink()


# ---- HDFS ------------------------------------------------------------------------------------------------------------


class HdfsError(Exception):
    """As the client library raises it."""


class HdfsFile(io.BytesIO):
    """A file that is being written: it is there when it is closed."""

    def __init__(self, files: dict[str, bytes], path: str) -> None:
        super().__init__()
        self._files, self._path = files, path

    def close(self) -> None:
        if not self.closed:
            self._files[self._path] = self.getvalue()
        super().close()


class Hdfs:
    """The client of WebHDFS that Beam uses, on files in memory. Folders exist if a file is in them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def status(self, path: str, strict: bool = True) -> dict[str, Any] | None:
        if path in self.files:
            return {"type": "FILE", "length": len(self.files[path]), "modificationTime": 0}
        if any(each.startswith(f"{path.rstrip('/')}/") for each in self.files):
            return {"type": "DIRECTORY", "length": 0, "modificationTime": 0}
        if strict:
            raise HdfsError(f"File does not exist: {path}")
        return None

    def list(self, path: str, status: bool) -> list[tuple[str, Any]]:
        assert status
        self.status(path)
        names = {posixpath.relpath(each, path).split("/")[0] for each in self.files if each.startswith(f"{path}/")}
        return [(name, self.status(posixpath.join(path, name))) for name in sorted(names)]

    def write(self, path: str) -> HdfsFile:
        return HdfsFile(self.files, path)

    def rename(self, source: str, target: str) -> None:
        if target in self.files:
            raise HdfsError(f"{target} exists")
        self.files[target] = self.files.pop(source)

    def delete(self, path: str, recursive: bool) -> None:
        for each in [each for each in self.files if each == path or (recursive and each.startswith(f"{path}/"))]:
            del self.files[each]


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hdfs]:
    client = Hdfs()
    library = types.SimpleNamespace(InsecureClient=lambda *_, **__: client, HdfsError=HdfsError)
    monkeypatch.setattr("apache_beam.io.hadoopfilesystem.hdfs", library)
    before = FileSystems._pipeline_options
    FileSystems.set_options(PipelineOptions(HDFS))
    yield client
    FileSystems._pipeline_options = before


def test_objects_on_hdfs_go_by_age_and_other_files_stay(hdfs: Hdfs) -> None:
    put("hdfs://data/claims")
    put("hdfs://data/claims", days_ago=1)
    put("hdfs://data/claims2")
    hdfs.files |= {"/data/claims/2026-01-01/part-0": b"x", "/data/claims/2026-01-02": b"x", "/data/claims/a/b": b"x"}
    plan = clean("hdfs://data/claims/", older_than_s=WEEK_S, now_s=NOON_S, dry_run=True)
    assert (plan.objects, plan.bytes, plan.days) == (1, len(BIG), ("2026-02-03",))
    assert len(hdfs.files) == 6
    assert clean("hdfs://data/claims", older_than_s=WEEK_S, now_s=NOON_S) == plan
    days = sorted(posixpath.relpath(path, "/data").rpartition("/")[0] for path in hdfs.files)
    assert days == ["claims", "claims/2026-01-01", "claims/2026-03-04", "claims/a", "claims2/2026-02-03"]


def test_another_writer_of_the_same_body_leaves_no_part_on_hdfs(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    put("hdfs://data/claims")
    exists = iter([False, True])
    monkeypatch.setattr(FileSystems, "exists", lambda path: next(exists))
    put("hdfs://data/claims")
    assert [path[-5:] == ".part" for path in hdfs.files] == [False]


@pytest.mark.parametrize("name", ["claims[1]", "cl*", "cl?ims"])
def test_on_hdfs_a_folder_that_cannot_be_listed_is_refused(name: str, hdfs: Hdfs) -> None:
    put(f"hdfs://data/{name}")
    with pytest.raises(LocalError, match=r"has \*, \? or \[ in its name.*own tools"):
        clean(f"hdfs://data/{name}", older_than_s=WEEK_S, now_s=NOON_S)
    with pytest.raises(LocalError, match="there is no folder 'hdfs://data/other'"):
        clean("hdfs://data/other", older_than_s=WEEK_S, now_s=NOON_S)


@pytest.mark.usefixtures("hdfs")
def test_the_command_takes_the_options_of_hdfs(capsys: pytest.CaptureFixture[str]) -> None:
    from rmqio.cli.main import main

    put("hdfs://data/claims")
    FileSystems.set_options(PipelineOptions([]))
    assert main(["claims", "clean", "hdfs://data/claims", "--older_than=7d"]) == 1
    assert "hdfs_host is not set" in capsys.readouterr().err
    assert main(["claims", "clean", "hdfs://data/claims", "--older_than=7d", *HDFS]) == 0
    assert capsys.readouterr().out.startswith("1 object of 2026-02-03")


# ---- object stores ---------------------------------------------------------------------------------------------------


class Bucket(FileSystem):
    """An object store in memory that lists by prefix and, as Beam's for GCS does, removes by pattern."""

    def __init__(self) -> None:
        super().__init__(None)
        self.files: dict[str, bytes] = {}

    @classmethod
    def scheme(cls) -> str:
        return "rmqio-test-bucket"

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        return (FileMetadata(path, len(self.files[path]), 0.0) for path in self.files if path.startswith(dir_or_prefix))

    def exists(self, path: str) -> bool:
        return path in self.files

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, len(self.files[path]), 0.0)

    def delete(self, paths: list[str]) -> None:
        for found in self.match(paths):
            for each in found.metadata_list:
                del self.files[each.path]

    def _unused(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    join = split = mkdirs = create = open = copy = rename = size = last_updated = checksum = _unused


class LiteralBucket(Bucket):
    """As those for S3 and Azure: they remove by exact paths."""

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            del self.files[path]


@pytest.mark.parametrize(("scheme", "kind"), [("gs", Bucket), ("s3", LiteralBucket), ("azfs", LiteralBucket)])
@pytest.mark.parametrize("name", NAMES)
def test_in_an_object_store_too(name: str, scheme: str, kind: type[Bucket], monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, object_ = kind(), f"2026-02-03/{'a' * 64}"
    monkeypatch.setattr(FileSystems, "get_filesystem", staticmethod(lambda path: bucket))
    ours = f"{scheme}://bucket/{name}/{object_}"
    others = [f"{scheme}://bucket/{other}/{object_}" for other in ("claims1", "claims", "c", "clxims", "ab/claims")]
    bucket.files = dict.fromkeys((ours, *others), b"xyz")
    cleaned = clean(f"{scheme}://bucket/{name}", older_than_s=WEEK_S, now_s=NOON_S)
    assert (cleaned.objects, cleaned.bytes) == (1, 3)
    assert set(bucket.files) == set(others)
    remove([])


def test_a_file_system_of_another_kind_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("404")

    monkeypatch.setattr(FileSystems, "match", refuse)
    with pytest.raises(ClaimStoreError, match=r"cannot clean gs://bucket: RuntimeError: 404"):
        clean("gs://bucket", older_than_s=1)
