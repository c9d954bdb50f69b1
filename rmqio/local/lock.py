"""A tool for maintainers: resolve Maven coordinates with `mvn` and write the lock file that users fetch by.

    python -m rmqio.local.lock --name rocketmq-5.5.0 \\
        org.apache.rocketmq:rocketmq-namesrv:5.5.0 org.apache.rocketmq:rocketmq-broker:5.5.0

Users need neither this nor Maven.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from rmqio.local.artefacts import Artefact, Coordinates, Lock, dump_lock
from rmqio.local.errors import LocalBrokerError

# A line of dependency:list, as "   group:artifact:packaging[:classifier]:version:scope:/the/file [-- module x]"
_LISTED: Final = re.compile(r"^\s*((?:[^\s:]+:){5,6})(/[^:]+?)(?:\s+--\s.*)?$")


def resolve(name: str, roots: Sequence[str]) -> Lock:
    """Return the lock of everything that `roots` need at run time.

    Raises LocalBrokerError if `mvn` is missing or cannot resolve them. Requires a network unless Maven has all files.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise LocalBrokerError("mvn is not on PATH: locks are resolved with Apache Maven (users do not need it)")
    with tempfile.TemporaryDirectory(prefix="rmqio-lock-") as folder:
        Path(folder, "pom.xml").write_text(_pom([Coordinates.parse(root) for root in roots]), encoding="utf-8")
        listing = Path(folder, "dependencies.txt")
        command = [
            maven,
            "-B",
            "-q",
            "dependency:list",
            "-DincludeScope=runtime",
            "-DoutputAbsoluteArtifactFilename=true",
        ]
        result = subprocess.run(
            [*command, f"-DoutputFile={listing}"], cwd=folder, capture_output=True, text=True, check=False
        )
        if result.returncode != 0 or not listing.is_file():
            raise LocalBrokerError(
                f"mvn could not resolve {', '.join(roots)}:\n{(result.stdout + result.stderr)[-2000:]}"
            )
        # Sorted, because Maven lists in hash order and a new lock should differ only in its content.
        artefacts = tuple(
            sorted(_listed(listing.read_text(encoding="utf-8")), key=lambda entry: str(entry.coordinates))
        )
    if not artefacts:
        raise LocalBrokerError(f"mvn resolved {', '.join(roots)} to nothing")
    return Lock(name, tuple(roots), artefacts)


def _pom(roots: Sequence[Coordinates]) -> str:
    dependencies = "".join(
        "<dependency>"
        f"<groupId>{escape(root.group)}</groupId><artifactId>{escape(root.artifact)}</artifactId>"
        f"<version>{escape(root.version)}</version><type>{escape(root.packaging)}</type>"
        + (f"<classifier>{escape(root.classifier)}</classifier>" if root.classifier else "")
        + "</dependency>"
        for root in roots
    )
    head = "<modelVersion>4.0.0</modelVersion><groupId>rmqio</groupId><artifactId>lock</artifactId><version>1</version>"
    return f"<project>{head}<dependencies>{dependencies}</dependencies></project>"


def _listed(listing: str) -> Iterator[Artefact]:
    for line in listing.splitlines():
        if match := _LISTED.match(line):
            group, artifact, packaging, *classifier, version, _scope = match[1].rstrip(":").split(":")
            file = Path(match[2])
            coordinates = Coordinates(group, artifact, version, packaging, "".join(classifier))
            if file.name != coordinates.filename:
                raise LocalBrokerError(
                    f"{coordinates}: expected the file {coordinates.filename}, Maven has {file.name}"
                )
            content = file.read_bytes()
            yield Artefact(coordinates, hashlib.sha256(content).hexdigest(), len(content))


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve the coordinates and write NAME.lock.json beside this module, or to --output."""
    parser = argparse.ArgumentParser(
        prog="python -m rmqio.local.lock", description="Resolve Maven coordinates into a lock."
    )
    parser.add_argument("roots", nargs="+", metavar="GROUP:ARTIFACT:VERSION[:PACKAGING[:CLASSIFIER]]")
    parser.add_argument("--name", required=True, help="the lock's name, for example rocketmq-5.5.0")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="default: NAME.lock.json in the package rmqio.local"
    )
    given = parser.parse_args(arguments)
    output = given.output or Path(__file__).with_name(f"{given.name}.lock.json")
    try:
        lock = resolve(given.name, given.roots)
    except LocalBrokerError as error:
        print(f"rmqio.local.lock: {error}", file=sys.stderr)
        return 1
    output.write_text(dump_lock(lock), encoding="utf-8")
    print(f"{output}: {len(lock.artefacts)} artefacts, {lock.size / 1e6:.0f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
