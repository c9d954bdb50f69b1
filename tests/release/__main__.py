"""Builds the sdist and the wheels, installs each into an empty environment, and runs a smoke test there.

The wheel with the C extension is of this machine's platform; the one without it is for all others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
_SMOKE: Final = Path(__file__).with_name("smoke.py")
_HIDDEN: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NAMESRV_ADDR")
"""Variables that could make this source tree importable, or a broker known."""


class Artefact(NamedTuple):
    """A file to publish, and the implementation of the codecs that an installation of it has."""

    path: Path
    implementation: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: %(default)s")
    folder: Path = parser.parse_args().dist
    shutil.rmtree(folder, ignore_errors=True)
    for artefact in build(folder):
        with tempfile.TemporaryDirectory(prefix="rmqio-release-") as elsewhere:
            smoke(artefact, Path(elsewhere))
        print(f"{artefact.path.name}: installs and runs ({artefact.implementation} codecs)", flush=True)
    return 0


def build(folder: Path) -> list[Artefact]:
    """Builds everything from the sdist, so that what is missing there shows."""
    _run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir", "--wheel-dir", folder, sdist)
    _run(*pip, more={"RMQIO_NO_EXTENSION": "1"})
    (pure,) = folder.glob("*-none-any.whl")
    _run(*pip)
    (compiled,) = set(folder.glob("*.whl")) - {pure}
    return [Artefact(sdist, "c"), Artefact(compiled, "c"), Artefact(pure, "python")]


def smoke(artefact: Artefact, folder: Path) -> None:
    """Installs an artefact into an empty environment and runs the smoke test there."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", artefact.path, cwd=folder)
    shutil.copy(_SMOKE, folder / "smoke.py")
    _run(python, "smoke.py", artefact.implementation, cwd=folder)


def _run(*command: object, cwd: Path = ROOT, more: Mapping[str, str] | None = None) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN} | dict(more or {})
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, check=False)
    if done.returncode:
        sys.stderr.buffer.write(done.stdout[-5_000:] + done.stderr[-5_000:])
        raise SystemExit(f"failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    raise SystemExit(main())
