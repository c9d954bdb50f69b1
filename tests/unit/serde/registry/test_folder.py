"""`FolderRegistry`: files that come, go and are wrong; several processes on one folder."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqio.errors import LocalError
from rmqio.serde.registry import FolderRegistry, SchemaRegistryError, UnknownSchema, fingerprint
from tests.helpers.waiting import at_most

FIXED = '{"type":"fixed","name":"F","size":%d}'


def write(folder: Path, name: str, schema: str) -> None:
    (folder / name).write_text(schema, encoding="utf-8-sig")  # as editors of Windows write it


def test_files_are_versions_of_subjects(tmp_path: Path) -> None:
    names = ["orders.v1.avsc", "orders.v2.avsc", "orders.v10.avsc", "shop.orders.v1.v3.avsc", "%DLQ%g.v1.avsc"]
    for size, name in enumerate(names):
        write(tmp_path, name, FIXED % size)
    for name in ("README.md", "orders.avsc.bak", ".orders.v4.avsc", "__init__.py"):
        write(tmp_path, name, "not a schema")
    registry = FolderRegistry(tmp_path)
    assert registry.subjects() == ["%DLQ%g", "orders", "shop.orders.v1"]
    assert registry.versions("orders") == [1, 2, 10]
    assert registry.by_version("orders").schema == FIXED % 2
    assert registry.by_version("shop.orders.v1", 3).schema == FIXED % 3
    assert registry.register("orders", FIXED % 99) == registry.by_version("orders", 11).id


def test_a_registered_schema_is_a_file_as_it_was_given(tmp_path: Path) -> None:
    text = '{ "type": "fixed",\r\n "name": "浙", "size": 1 }\n'
    FolderRegistry(tmp_path).register("orders", text)
    assert [path.name for path in tmp_path.iterdir()] == ["orders.v1.avsc"]
    assert (tmp_path / "orders.v1.avsc").read_bytes() == text.encode()
    assert (tmp_path / "orders.v1.avsc").stat().st_mode & 0o777 == 0o644


def test_other_files_change_no_id(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    schema_id = registry.register("orders", FIXED % 5)
    write(tmp_path, "aaa.v1.avsc", FIXED % 6)
    write(tmp_path, "orders.v2.avsc", FIXED % 7)
    assert FolderRegistry(tmp_path).by_version("orders", 1).id == schema_id
    (tmp_path / "aaa.v1.avsc").unlink()
    assert FolderRegistry(tmp_path).by_id(schema_id) == FIXED % 5


@pytest.mark.parametrize(
    "ask",
    [
        lambda registry, other: registry.by_id(other.by_version("late").id),
        lambda registry, other: registry.by_version("late"),
        lambda registry, other: registry.by_version("late", 1),
        lambda registry, other: registry.by_fingerprint(fingerprint(FIXED % 2)),
        lambda registry, other: registry.versions("late"),
        lambda registry, other: registry.subjects().index("late"),
    ],
    ids=range(6),
)
def test_an_unknown_thing_is_looked_for_again(
    tmp_path: Path, ask: Callable[[FolderRegistry, FolderRegistry], object]
) -> None:
    registry, other = FolderRegistry(tmp_path), FolderRegistry(tmp_path)
    registry.register("early", FIXED % 1)
    other.register("late", FIXED % 2)
    ask(registry, other)


def test_files_are_read_again_only_when_others_are_there(tmp_path: Path) -> None:
    """A stream of messages with an unknown id must not read the files each time."""
    registry = FolderRegistry(tmp_path)
    registry.register("orders", FIXED % 1)
    catalog = registry._state.catalog
    for _ in range(3):
        with pytest.raises(UnknownSchema):
            registry.by_id(1)
    assert registry._state.catalog is catalog
    write(tmp_path, "orders.v2.avsc", FIXED % 2)
    assert registry.by_version("orders").version == 1, "what was known is not looked up"
    assert registry.versions("orders") == [1, 2]
    assert registry.by_version("orders").version == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("orders.avsc", b'"int"', r"orders\.avsc: a schema's file is called SUBJECT.vN.avsc"),
        ("orders.v0.avsc", b'"int"', "SUBJECT.vN.avsc with N from 1"),
        ("orders.v01.avsc", b'"int"', "SUBJECT.vN.avsc"),
        ("or ders.v1.avsc", b'"int"', "SUBJECT.vN.avsc"),
        ("orders.v1.avsc", b"", r"orders\.v1\.avsc: the schema is not JSON: .* line 1 column 1"),
        ("orders.v1.avsc", b"int", r"orders\.v1\.avsc: the schema is not JSON"),
        ("orders.v1.avsc", b'"\xff"', r"orders\.v1\.avsc: it is not UTF-8 text"),
        ("orders.v1.avsc", b"7", r"orders\.v1\.avsc: the schema is JSON of type int"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SchemaRegistryError, match=message) as caught:
        FolderRegistry(tmp_path).subjects()
    assert str(tmp_path) in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaRegistryError, match="nowhere of schemas cannot be read: No such file or directory"):
        FolderRegistry(tmp_path / "nowhere").by_id(1)
    (tmp_path / "orders.v1.avsc").mkdir()
    with pytest.raises(SchemaRegistryError, match=r"orders\.v1\.avsc cannot be read: Is a directory"):
        FolderRegistry(tmp_path).by_id(1)


def test_two_files_with_one_id_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a.v1.avsc", FIXED % 823)
    write(tmp_path, "b.v2.avsc", FIXED % 66688)
    with pytest.raises(
        SchemaRegistryError, match="'a' version 1 and 'b' version 2 are different schemas with the same"
    ):
        FolderRegistry(tmp_path).subjects()


@pytest.mark.parametrize("subject", ["", "../orders", "a/b", ".hidden", "a b", "a\n", "ü"])
def test_a_subject_that_is_no_file_name_is_refused(tmp_path: Path, subject: str) -> None:
    folder = tmp_path / "schemas"
    folder.mkdir()
    with pytest.raises(LocalError, match="cannot be a subject in a folder"):
        FolderRegistry(folder).register(subject, '"int"')
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["schemas"]


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)  # as on a file system without hard links; root may write everywhere
    with pytest.raises(SchemaRegistryError, match=r"orders\.v1\.avsc cannot be written: Operation not permitted"):
        FolderRegistry(tmp_path).register("orders", '"int"')
    assert not list(tmp_path.iterdir())


def test_equal_by_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schemas").mkdir()
    relative = FolderRegistry("schemas")
    assert relative == FolderRegistry(tmp_path / "schemas")
    assert hash(relative) == hash(FolderRegistry(tmp_path / "schemas"))
    assert relative != FolderRegistry(tmp_path)
    assert repr(relative) == f"FolderRegistry(folder={tmp_path / 'schemas'!r})"
    relative.register("orders", '"int"')
    data = pickle.dumps(relative)
    monkeypatch.chdir("/")
    assert pickle.loads(data).subjects() == ["orders"]


def _register(folder: Path, start: int) -> None:
    registry = FolderRegistry(folder)
    for size in range(start, start + 20):
        registry.register("shared", FIXED % size)


def test_processes_may_write_one_subject(tmp_path: Path) -> None:
    processes = [
        multiprocessing.get_context("fork").Process(target=_register, args=(tmp_path, start)) for start in (1, 11, 21)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(at_most(60))
    assert [process.exitcode for process in processes] == [0, 0, 0]
    registry = FolderRegistry(tmp_path)
    versions = registry.versions("shared")
    assert versions == list(range(1, len(versions) + 1))
    schemas = [registry.by_version("shared", version).schema for version in versions]
    assert sorted(schemas) == sorted(FIXED % size for size in range(1, 41)), "each one once"
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]


def test_a_fork_does_not_inherit_a_lock_that_is_held(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    registry.register("orders", '"int"')
    with registry._state.lock:
        child = multiprocessing.get_context("fork").Process(
            target=registry.register, args=("orders", '"long"'), daemon=True
        )
        child.start()
        child.join(at_most(60))
    assert child.exitcode == 0
    assert registry.versions("orders") == [1, 2]
