"""Spark's Python processes import the installed PySpark, where Spark would have them take it from a zip file."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")

SITE = Path(importlib.import_module("rmqio.runners.spark.sessions.session").__file__ or "").with_name("site")
PACKAGES = Path(pyspark.__file__).parents[1]
ZIPS = sorted(map(str, (PACKAGES / "pyspark" / "python" / "lib").glob("*.zip")))


def without_zips(path: list[str]) -> list[str]:
    spec = importlib.util.spec_from_file_location("of_ours", SITE / "sitecustomize.py")
    assert spec is not None
    module: Any = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    found: list[str] = module.without_zips(path)
    return found


def test_the_zips_of_an_installed_pyspark_go() -> None:
    assert len(ZIPS) == 2
    assert without_zips(["", *ZIPS, "/more.zip", str(PACKAGES)]) == ["", "/more.zip", str(PACKAGES)]


@pytest.mark.parametrize(
    "path",
    [
        [*ZIPS, "/elsewhere"],
        ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10-src.zip", str(PACKAGES)],
        ["pyspark.zip", "py4j-0.10-src.zip", str(PACKAGES)],
        ["/pyspark.zip", ""],
    ],
    ids=["not installed", "of another Spark", "relative", "at the root"],
)
def test_others_stay(path: list[str]) -> None:
    assert without_zips(path) == path


def run(program: str, *paths: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*ZIPS, str(SITE), *paths])}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_process_imports_the_installed_one() -> None:
    found = run("import pyspark, py4j, sys; print(pyspark.__file__, py4j.__file__, *sys.path_importer_cache)")
    assert ".zip/" not in found
    assert not set(found.split()) & set(ZIPS)


def test_another_module_of_the_name_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.seen = __file__")
    found = run("print(seen); import pyspark; print(pyspark.__file__)", str(tmp_path)).split()
    assert found[0] == str(tmp_path / "sitecustomize.py")
    assert ".zip/" not in found[1]
