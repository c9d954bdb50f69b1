"""Whether a changed text can go on from the state of the one before it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rmqio.sql.catalog.further import load_catalogs
from rmqio.sql.errors import SqlError
from rmqio.sql.planning.signature import changes, signature_of
from rmqio.sql.scripts.script import Script


def check_replaced(script: Script, arguments: argparse.Namespace) -> None:
    """Raises `SqlError` if the text of `--replaces` has a state that does not fit the script."""
    if arguments.replaces is None:
        return
    before = Script()
    try:
        load_catalogs(before, arguments.catalog)
        before.run(Path(arguments.replaces).read_text("utf-8-sig"), arguments.file)
    except SqlError:  # not valid any more, by a catalog for instance: the runner says whether the state fits
        return
    if found := changes(signature_of(before.sinks), signature_of(script.sinks)):
        raise SqlError(
            f"it cannot go on from its checkpoint: {'; '.join(found)}. Give the new query a file of its own, or begin "
            "anew: rmqio sql stop, remove the checkpoint, rmqio sql start"
        )
