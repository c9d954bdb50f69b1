"""Settings with which no JVM uses or makes a file of its classes."""

from __future__ import annotations

from typing import Any

import pytest


def turned_off(variable: str) -> list[Any]:
    """Returns parameters: the environment, the user's options of the JVM, and the version of Java."""
    return [
        pytest.param({variable: "0"}, (), 17, id="turned off"),
        pytest.param({"JDK_JAVA_OPTIONS": "-Xshare:off"}, (), 17, id="a variable of Java"),
        pytest.param({}, ("-XX:SharedArchiveFile=/mine.jsa",), 17, id="an option"),
        pytest.param({}, (), 11, id="an old Java"),
    ]
