"""The schemas that the package brings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqio import schemas
from rmqio.serde.registry import FolderRegistry, UnknownSchema, fingerprint


def test_each_file_of_the_package_is_a_schema_that_is_loaded() -> None:
    folder = Path(schemas.__file__).parent
    assert schemas.registry() == FolderRegistry(folder)
    found = {
        f"{subject}.v{version}.avsc": schemas.load(subject, version)
        for subject in schemas.registry().subjects()
        for version in schemas.registry().versions(subject)
    }
    assert found == {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.avsc")}
    assert all(fingerprint(schema) for schema in found.values())


def test_the_newest_version_is_loaded_unless_one_is_asked_for() -> None:
    for subject in schemas.registry().subjects():
        newest = schemas.registry().versions(subject)[-1]
        assert json.loads(schemas.load(subject)) == json.loads(schemas.load(subject, newest))


def test_an_unknown_schema_is_an_error_that_names_the_others() -> None:
    with pytest.raises(UnknownSchema, match="no subject 'nothing'; the subjects are: ") as caught:
        schemas.load("nothing")
    assert all(repr(subject) in str(caught.value) for subject in schemas.registry().subjects())
