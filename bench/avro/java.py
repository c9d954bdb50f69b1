"""Java's own Avro: GenericDatumReader and GenericDatumWriter, in a JVM that is warm."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.common.jvm import JAVA, Jdk
from bench.common.process import LineProcess
from bench.common.tally import Tally, require_equal
from rmqio.local.artefacts import read_lock
from rmqio.local.fetch import fetch

LOCK: Final = JAVA / "avro-1.12.1.lock.json"
_ROUNDS: Final = 25
"""Over all values for one measurement, which alone take Java a few milliseconds."""
_SIZE: Final = struct.Struct(">i")


def avro_command(jdk: Jdk, source: Path, arguments: Sequence[str] = ()) -> list[str]:
    """Runs a program of one source file, which the JDK compiles itself. Raises `LocalBrokerError`: no library."""
    class_path = os.pathsep.join(map(str, fetch(read_lock(LOCK))))
    return [str(jdk.java), "-Xmx256m", "-XX:+UseSerialGC", "-cp", class_path, str(source), *arguments]


class JavaAvro:
    """One process for the values of one schema, as users have it: compiled for these types and no others."""

    def __init__(self, jdk: Jdk, folder: Path, schema_text: str, bodies: Sequence[bytes]) -> None:
        self._folder, self._count, self._bytes = folder, len(bodies), sum(map(len, bodies))
        schema_file, bodies_file = folder / "schema.avsc", folder / "bodies"
        schema_file.write_text(schema_text, encoding="utf-8")
        bodies_file.write_bytes(_SIZE.pack(len(bodies)) + b"".join(_SIZE.pack(len(each)) + each for each in bodies))
        command = avro_command(jdk, JAVA / "AvroBench.java", [str(schema_file), str(bodies_file)])
        self._process = LineProcess("Java's Avro", command, folder / "java.log", cwd=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.close()

    def rate(self, step: str) -> float:
        """Values a second, of "decode" or "encode". Raises `UnequalWork`."""
        answer = self._process.ask(f"{step} {_ROUNDS}")
        done = Tally(answer["count"], answer["bytes"])
        require_equal(step, {"Java": done, "what was asked for": Tally(_ROUNDS * self._count, _ROUNDS * self._bytes)})
        return _ROUNDS * self._count / float(answer["seconds"])

    def warm_up(self, least_s: float) -> None:
        """So long, both steps: until then Java compiles them."""
        until = time.monotonic() + least_s
        while time.monotonic() < until:
            self.rate("decode")
            self.rate("encode")

    def encoded(self) -> list[bytes]:
        """Returns the bodies that it writes of the values that it read."""
        path = self._folder / "again"
        self._process.ask(f"write {path}")
        content = path.read_bytes()
        return list(_bodies(content))


def _bodies(content: bytes) -> Iterable[bytes]:
    at = _SIZE.size
    for _ in range(*_SIZE.unpack_from(content)):
        (size,) = _SIZE.unpack_from(content, at)
        at += _SIZE.size + size
        yield content[at - size : at]
