"""Where the file of Spark's classes is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.servers import jvms


@pytest.mark.parametrize("kind", ["none", "copy", "link"])
def test_only_jars_that_are_links_are_kept_for_all_environments(kind: str, tmp_path: Path) -> None:
    spark, kept, cached = (tmp_path / name for name in ("pyspark", "kept", "cached.jar"))
    for folder in (spark / "bin", spark / "jars", kept):
        folder.mkdir(parents=True)
    jar = spark / "jars" / "spark-core_2.13.jar"
    cached.write_bytes(b"classes")
    if kind == "link":
        jar.hardlink_to(cached)
    elif kind == "copy":
        jar.write_bytes(b"classes")
    (kept / "jars").mkdir()
    (kept / "jars" / "older.jar").write_bytes(b"older")
    home, archive = jvms._home_and_archive(spark, kept)
    assert (home, kept in archive.parents) == ((kept, True) if kind == "link" else (spark, False))
