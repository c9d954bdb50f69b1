"""Names that were others once: they go on for one release, and say what they are now."""

from __future__ import annotations

import subprocess
import sys

import pytest

OLD = [
    ("from rmqio.seams import ClientFactory, Fetched", "rmqio.interfaces"),
    ("from rmqio.errors import SystemError_", "BrokerSystemError"),
    ("from rmqio.spark import register", "rmqio.pyspark"),
]


@pytest.mark.parametrize(("statement", "new"), OLD)
def test_an_old_name_works_and_warns(statement: str, new: str) -> None:
    if "spark" in statement:
        pytest.importorskip("pyspark", reason="the format for PySpark needs the extra 'spark'")
    done = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", "-c", statement],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"DeprecationWarning: {statement.split()[1]}" in done.stderr
    assert f"{new} now" in done.stderr
