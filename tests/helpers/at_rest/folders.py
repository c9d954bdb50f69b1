"""The folders that rmqio leaves at rest: how each is written, and what is read from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rmqio import Message
from rmqio.claims import check
from rmqio.claims.store import ClaimStore
from rmqio.enrich.store import Pointer, Store
from rmqio.enrich.table.building import build
from rmqio.enrich.table.mapped import MappedTable
from rmqio.enrich.table.rows import Spec
from rmqio.jobs.state import StateFolder, Status
from rmqio.rules import ruleset
from rmqio.sql.runtime.runners import check_signature
from rmqio.sql.scripts.script import Script
from tests.helpers.at_rest.things import RECORD, T0

_ROWS: Final = {"k": ["a", "b", "c"], "n": [1, None, 3], "tags": [["x"], [], None]}
_STATUS: Final = Status("group/name", "running", 1.5, 2, 3, "", "", 0.5)
_RULE: Final = '{"id": "r", "condition": {"field": "a", "is": "equals", "value": "x"}}'
_SQL: Final = """
CREATE TABLE o (id BIGINT, c STRING, n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('topic' = 'o');
CREATE TABLE c (id BIGINT, name STRING) WITH ('topic' = 'c');
CREATE TABLE x (a BIGINT, b STRING) WITH ('topic' = 'x');
SET 'table.exec.state.ttl' = '1 h';
INSERT INTO x SELECT SUM(n), c FROM o GROUP BY c, HOP(ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE);
INSERT INTO x SELECT o.id, c.name FROM o JOIN c ON o.id = c.id;
INSERT INTO x SELECT id, c FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY c ORDER BY ts) AS r FROM o) WHERE r = 1;
INSERT INTO x SELECT SUM(n) OVER (PARTITION BY c ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW),
c FROM o;
"""


class Folder(NamedTuple):
    """A folder.

    Attributes:
      read: gives the value.
      refused: what is said if a text in a file is another one, as a regular expression; empty: it has no version.
      other: the file, the text in it, and that of another version.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    value: Any
    refused: str = ""
    other: tuple[str, str, str] = ("", "", "")


def _build(folder: Path) -> None:
    (folder / "new").mkdir()
    manifest = build([pa.RecordBatch.from_pydict(_ROWS)], Spec(("k",)), folder / "new", seed=7)
    (folder / "new").rename(folder / "table")
    Store(folder).point(Pointer(manifest.version, "5", T0 / 1000, {"orders/broker-a/3": 41}))


def _looked_up(folder: Path) -> Any:
    pointer = Store(folder).pointer()
    assert pointer is not None
    table = MappedTable(folder / "table")
    assert table.manifest.version == pointer.version
    found = table.get(["a", "b", "c", "d"])
    return [each and tuple(each) for each in found], pointer.source_version, pointer.checked_at, pointer.positions


def _sinks() -> Any:
    script = Script()
    script.run(_SQL)
    return script.sinks


def _keep_signature(folder: Path) -> None:
    check_signature(str(folder), _sinks())
    (folder / "offsets").mkdir()
    (folder / "offsets" / "0").write_text("v1")


def _told(folder: Path) -> list[str]:
    told: list[str] = []
    check_signature(str(folder), _sinks(), told.append, stores=False)
    return told


def _keep_jobs(folder: Path) -> None:
    jobs = StateFolder(folder)
    job = jobs.job("group/name")
    job.write_status(_STATUS)
    job.text.write_text("SELECT 1")
    jobs.request("stop", "group/name")


def _jobs(folder: Path) -> Any:
    jobs = StateFolder(folder)
    return jobs.statuses(), jobs.job("group/name").read_text(), list(jobs.requests())


def _claims(folder: Path) -> ClaimStore:
    return ClaimStore(check.ClaimCheck(str(folder), above_bytes=1), lambda: T0 / 1000)


def _claimed(folder: Path) -> list[bytes]:
    reference = check.Reference.of(b"a big body", T0 / 1000)
    message = check.with_reference(Message(b"", tags="a"), reference, "elsewhere")
    raw = "".join(f"{name}\x01{value}\x02" for name, value in message.properties.items()).encode()
    record: Any = RECORD._replace(body=message.body, raw_properties=raw)
    found, _ = _claims(folder).resolve([record])
    return [each.body for each in found]


def _keep_rules(folder: Path) -> None:
    (folder / "a.json").write_text(_RULE)
    ruleset.write_manifest(folder / "manifest.json", [folder / "a.json"])


def _rules(folder: Path) -> list[str]:
    return [each.text for each in ruleset.Files((str(folder / "manifest.json"),)).texts()]


FOLDERS: Final[dict[str, Folder]] = {
    "table of enrich": Folder(
        _build, _looked_up,
        ([(1, ["x"]), (None, []), (3, None), None], "5", T0 / 1000, {"orders/broker-a/3": 41}),
        "table of another version of rmqio: its format and hash are .* Delete the folder, and load the table again$",
        ("table/manifest.json", '"format": 1', '"format": 99'),
    ),
    "signature of a SQL job": Folder(
        _keep_signature, _told, [],
        "holds the state of another version of rmqio, .*, or start with another --checkpoint_dir$",
        ("rmqio-sql.json", '"version": 4', '"version": 99'),
    ),
    "jobs": Folder(_keep_jobs, _jobs, ([_STATUS], b"SELECT 1", [("stop", "group/name")])),
    "claims": Folder(lambda folder: _claims(folder).put(Message(b"a big body")), _claimed, [b"a big body"]),
    "rules": Folder(_keep_rules, _rules, [_RULE]),
}  # fmt: skip


def written(name: str) -> dict[str, bytes]:
    """Returns the files of a folder that is written now, by name."""
    with TemporaryDirectory() as text:
        folder = Path(text)
        FOLDERS[name].write(folder)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
