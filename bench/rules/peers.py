"""Peers in processes of their own: rsigma, in Rust, and the rules of RocketMQ Streams 1.0.1-preview, in Java.

Each is asked for its matches first, and then for the CPU of a run over the same file of events.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.common.jvm import JAVA, OUT, find_jdk
from bench.common.process import LineProcess
from bench.common.tally import BenchError
from bench.rules.translate import as_expressions, as_sigma
from rmqio.local.artefacts import read_lock
from rmqio.local.errors import LocalBrokerError
from rmqio.local.fetch import fetch
from rmqio.rules.ir import Rule

_HERE: Final = Path(__file__).parent
_BUILT: Final = OUT / "rsigma"
LOCK: Final = JAVA / "rocketmq-streams-1.0.1-preview.lock.json"
"""Written by `python -m rmqio.local.lock`; without the jars that rules do not load, such as Python and Spring."""


class Peer:
    """A peer with rules and events. Raises `BenchError` if it cannot be had; the text says why."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), *command]
        self._process = LineProcess(name, command, folder / "peer.log", cwd=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.close()

    def matches(self, count: int) -> list[list[str]]:
        """Returns the ids of the rules that each of the first events matches."""
        found: list[list[str]] = self._process.ask(f"matches {count}")["matches"]
        return found

    def run(self) -> float:
        """Returns the microseconds of CPU an event, of all events once."""
        return float(self._process.ask("run")["us"])


def rsigma(folder: Path, rules: Sequence[Rule], bodies: Sequence[bytes], *, with_index: bool) -> Peer:
    """Returns rsigma; `with_index`: with its index of all rules' texts, which is off by default."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise BenchError("rsigma needs Rust: there is no cargo on PATH")
    done = subprocess.run(
        [cargo, "build", "--release", "--locked", "--quiet", "--ignore-rust-version"],
        cwd=_HERE / "rsigma", env={**os.environ, "CARGO_TARGET_DIR": str(_BUILT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise BenchError(f"rsigma does not compile: {done.stderr[-500:]}")
    _write(folder, as_sigma(rules), bodies)
    command = [str(_BUILT / "release" / "rsigma-peer"), "rules", "events"]
    return Peer("rsigma, index" if with_index else "rsigma", command, folder, {"RSIGMA_AC": "1"} if with_index else {})


def rocketmq_streams(folder: Path, rules: Sequence[Rule], bodies: Sequence[bytes]) -> Peer:
    """Returns the rules of RocketMQ Streams."""
    jdk = find_jdk()
    try:
        class_path = os.pathsep.join(map(str, fetch(read_lock(LOCK))))
    except LocalBrokerError as error:
        raise BenchError(f"RocketMQ Streams: {error}") from error
    _write(folder, as_expressions(rules), bodies)
    command = [str(jdk.java), "-Xmx512m", "-XX:+UseSerialGC", "-cp", class_path, str(JAVA / "StreamsRules.java")]
    return Peer("RocketMQ Streams", [*command, "rules", "events"], folder, {})


def _write(folder: Path, rules: str, bodies: Sequence[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules").write_text(rules, encoding="utf-8")
    (folder / "events").write_bytes(b"\n".join(bodies) + b"\n")
