"""The maintainers' tool that resolves a lock, with a fake `mvn`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmqio.local import lock
from rmqio.local.artefacts import read_lock

FAKE_MVN = """#!/bin/sh
for option in "$@"; do
    case $option in -DoutputFile=*) output=${{option#-DoutputFile=}} ;; esac
done
cp pom.xml {folder}/seen.xml
cat > "$output" <<END

The following files have been resolved:
   org.b:thing:jar:1.0:compile:{folder}/thing-1.0.jar -- module org.b.thing (auto)
   org.a:native:jar:linux-x86_64:2.0:runtime:{folder}/native-2.0-linux-x86_64.jar
   org.a:pack:tar.gz:3:compile:{folder}/pack-3.tar.gz
END
exit {status}
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("thing-1.0.jar", "native-2.0-linux-x86_64.jar", "pack-3.tar.gz"):
        (tmp_path / name).write_text(name)
    install(tmp_path, 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def install(folder: Path, status: int) -> None:
    (folder / "mvn").write_text(FAKE_MVN.format(folder=folder, status=status))
    (folder / "mvn").chmod(0o755)


def test_a_lock_is_resolved_sorted_and_written(maven: Path) -> None:
    output = maven / "out.lock.json"
    assert lock.main(["--name", "out", "--output", str(output), "org.b:thing:1.0", "org.a:pack:3:tar.gz"]) == 0
    found = read_lock(output)
    assert found.roots == ("org.b:thing:1.0", "org.a:pack:3:tar.gz")
    assert [str(entry.coordinates) for entry in found.artefacts] == [
        "org.a:native:2.0:jar:linux-x86_64",
        "org.a:pack:3:tar.gz",
        "org.b:thing:1.0",
    ]
    assert found.artefacts[2].sha256 == hashlib.sha256(b"thing-1.0.jar").hexdigest()
    assert found.artefacts[2].size == len("thing-1.0.jar")
    assert "<artifactId>pack</artifactId><version>3</version><type>tar.gz</type>" in (maven / "seen.xml").read_text()


def test_a_failure_of_mvn_is_shown(maven: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(maven, 1)
    assert lock.main(["--name", "out", "--output", str(maven / "out"), "org.b:thing:1.0"]) == 1
    assert "could not resolve org.b:thing:1.0" in capsys.readouterr().err
    assert not (maven / "out").exists()


def test_without_mvn_the_error_says_that_users_need_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lock.main(["--name", "out", "org.b:thing:1.0"]) == 1
    assert "users do not need it" in capsys.readouterr().err
