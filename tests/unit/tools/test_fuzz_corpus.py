"""Inputs that the fuzzer has found, and those that it began with, again; and some that are like them.

The fuzzer itself is `make fuzz`.
"""

from __future__ import annotations

import hashlib
import io
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="Avro needs the extra 'avro'")

from rmqio.wire import accelerator, bodies
from rmqio.wire.batch import decode_batch
from rmqio.wire.command import Command
from tests.fuzz import __main__ as program
from tests.fuzz import checks, kept
from tests.fuzz.checks import Violation
from tests.fuzz.kept import FOLDER, load, mutated
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

MUTATED = 3000
each_target = pytest.mark.parametrize("target", TARGETS)


def replay(target: str) -> None:
    for data in (*load(target), *seeds(target), b""):
        TARGETS[target](data)


def test_the_corpus_is_of_the_targets_and_small() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(TARGETS)
    files = list(FOLDER.glob("*/*"))
    assert len(files) <= 150
    assert sum(path.stat().st_size for path in files) <= 300_000
    for path in files:
        assert path.name == hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@each_target
def test_what_was_found_is_found_no_more(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(load(target)) >= 5, f"the corpus of {target} is not there: python -m tests.fuzz --targets {target}"
    monkeypatch.setattr(checks, "measure_one_in", 1)
    replay(target)


@each_target
def test_inputs_that_are_like_them(target: str) -> None:
    choose = random.Random(target)
    inputs = [*load(target), *seeds(target)]
    for _ in range(MUTATED):
        TARGETS[target](mutated(choose.choice(inputs), inputs, choose))


@pytest.mark.parametrize("is_kept", [False, True], ids=["found", "kept"])
def test_a_run_writes_to_the_corpus_only_if_it_is_told_to(
    is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a fuzzer that finds one input more, since Atheris is for those who fuzz."""
    corpus, found, new = tmp_path / "corpus", tmp_path / "found", b"\0new"
    shutil.copytree(FOLDER / "frame", corpus / "frame")
    before = load("frame", corpus)
    began: list[list[bytes]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        folder = Path(command[5])
        began.append([path.read_bytes() for path in sorted(folder.iterdir())])
        (folder / "new").write_bytes(new)
        said = "#7 DONE cov: 1 ft: 1 corp: 1/1b\nDone 7 runs in 1 second(s)"
        return subprocess.CompletedProcess(command, 0, "", said)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kept, "FOLDER", corpus)
    monkeypatch.setattr(kept, "FOUND", found)
    monkeypatch.setattr(kept, "minimised", lambda call, inputs: sorted(inputs, key=len)[:5])
    monkeypatch.setattr(program, "_library", lambda folder: ("", "nothing"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr(sys, "argv", ["tests.fuzz", "--targets", "frame", *(["--keep"] if is_kept else [])])
    assert program.main() == 0
    assert new in load("frame", corpus if is_kept else found)
    assert program.main() == 0
    assert set(before) <= set(began[0])
    assert new not in began[0]
    assert new in began[1], "a run goes on where the last one was"
    assert is_kept or load("frame", corpus) == before
    assert found.exists() != is_kept


# ---- whether the targets see anything -------------------------------------------------------------------------------


def fails(*_: Any, **__: Any) -> Any:
    raise struct.error("not a documented error")


def without_limit(data: bytes, sys_flag: int, *, limit: int) -> bytes:
    return bodies.decompress(data, sys_flag, limit=1 << 24)


def takes_more(data: bytes, serialization: int) -> Command:
    return Command(len(bytes(100 * len(data) + (1 << 20))))


def reads_anything(stream: io.BytesIO, *_: Any, **__: Any) -> Any:
    return {"a": len(stream.read())}


FAULTS: list[tuple[str, str, Callable[..., Any], type[Exception]]] = [
    ("frame", "rmqio.wire.command.decode_header", lambda header, kind: Command(0, {"k": "v"}), Violation),
    ("frame", "rmqio.wire.command.FrameDecoder._join", fails, struct.error),
    ("header", "rmqio.wire.command._decode_rocketmq", fails, struct.error),
    ("header", "rmqio.wire.command._encode_rocketmq", lambda command: bytes(21), Violation),
    ("header", "tests.fuzz.targets.decode_header", takes_more, Violation),
    ("stored", "rmqio.wire.stored.decompress", without_limit, Violation),
    ("stored", "rmqio.wire.stored.cut", fails, struct.error),
    ("batch", "tests.fuzz.targets.decode_batch", lambda data: decode_batch(data)[:-1], Violation),
    ("properties", "tests.fuzz.targets.find_property", lambda raw, name: None, Violation),
    ("avro", "rmqio.serde.avro.deserializer.undecodable", fails, struct.error),
    ("avro", "rmqio.serde.avro.deserializer.schemaless_reader", reads_anything, Violation),
]


@pytest.mark.parametrize(("target", "where", "fault", "error"), FAULTS, ids=[f"{row[0]}-{row[1]}" for row in FAULTS])
def test_a_fault_is_seen(
    target: str, where: str, fault: Callable[..., Any], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "measure_one_in", 1)
    monkeypatch.setattr(where, fault)
    with pytest.raises(error):
        replay(target)


def test_a_difference_between_c_and_python_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    if accelerator.IMPLEMENTATION != "c":
        pytest.skip("the C extension is not built, or RMQIO_PURE_PYTHON is set")

    def decode(data: bytes, position: int, records: list[Any], *rest: Any) -> int:
        end = accelerator.decode_usual(data, position, records, *rest)  # type: ignore[misc]
        records[:] = [record._replace(flag=9) for record in records]
        return end

    faults = {"_read_usual": lambda data: (1, {}, 2, 3, None, None, 4), "_decode_usual": decode}
    monkeypatch.setattr(checks, "_CHOICES", [(*row[:3], faults.get(row[1], row[3])) for row in checks._CHOICES])
    for target in ("header", "stored"):
        with pytest.raises(Violation, match="Python and C differ"):
            replay(target)
