"""Builds a table in forked processes, of which each is killed one file operation later than the one before.

`python -m tests.helpers.pipelines.killed_build FOLDER STEP [shared]` prints a JSON object for each process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqio.enrich import Table, store
from rmqio.enrich.store import Wanted
from rmqio.enrich.table.rows import Spec

ROWS = 50
SPEC = Spec(("id",))


def write(folder: Path, value: int) -> None:
    """The source has one value in all rows."""
    pq.write_table(pa.table({"id": list(range(ROWS)), "v": [value] * ROWS}), folder / "new.tmp")
    os.replace(folder / "new.tmp", folder / "rows.parquet")


def die_at(number: int, folder: Path) -> None:
    """Kills this process before the operation with this number on a file of the folder."""
    operations = itertools.count()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.utime"):
            return
        if str(arguments[0]).startswith(str(folder)) and next(operations) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def values_of(wanted: Wanted) -> list[int] | None:
    """Returns the values that a process sees if it only opens the current version."""
    found = wanted.store().current()
    return sorted({row[0] for row in found[1].get(list(range(ROWS)))}) if found else None


def main(folder: Path, step: int, is_shared: bool) -> None:
    for number in itertools.count(step - 1, step):
        here = folder / str(number)
        here.mkdir()
        shared = here / "shared" if is_shared else None
        write(here, 1)
        more = {} if shared is None else {"shared_dir": str(shared)}
        wanted = Wanted(Table.from_parquet(str(here / "rows.parquet"), cache_dir=str(here / "cache"), **more), SPEC)
        store.load(wanted, newer_than=0)
        write(here, 2)
        child = os.fork()
        if child == 0:
            die_at(number, here)
            with contextlib.suppress(BaseException):
                store.load(wanted, newer_than=1e12)
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        after = values_of(wanted)
        rows = store.load(wanted, newer_than=1e12)[1].get(list(range(ROWS)))
        left = [str(each.relative_to(here)) for name in ("new-*", "current.json.*") for each in here.rglob(name)]
        found = {"after": after, "rebuilt": sorted({row[0] for row in rows}), "left": left}
        print(json.dumps({"status": status, **found}), flush=True)
        if not os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["shared"])
