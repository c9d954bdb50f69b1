"""Things at rest, as the code before has written them: today's code goes on from them, or refuses them in one line.

`python -m tests.helpers.at_rest` writes what is new. A thing that differs is a format that has changed: it needs a
version of its own, and a refusal of the one before, or it is a mistake.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lark", reason="SQL needs the extra 'sql'")
pytest.importorskip("pyspark", reason="the Spark runner needs the extra 'spark'")
pytest.importorskip("pyarrow", reason="dimension tables need the extra 'enrich'")

from rmqio.errors import RmqioError
from tests.helpers.at_rest import folders, levels
from tests.helpers.at_rest.__main__ import as_bytes, as_text, load
from tests.helpers.at_rest.things import THINGS, Thing

KEPT = {each: load(each) for each in ("things", "folders", "levels")}


def _refused(read: Callable[[], Any], said: str) -> None:
    with pytest.raises(RmqioError) as caught:
        read()
    text = str(caught.value)
    assert re.search(said, text), text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("name", THINGS)
def test_a_thing_is_read_and_written_as_before(name: str) -> None:
    thing: Thing = THINGS[name]
    written = thing.write(thing.value)
    assert as_text(written) == KEPT["things"][name]
    if thing.read is None:
        return
    text = KEPT["things"][name]
    kept = text if isinstance(written, str) else as_bytes(text)
    wanted = thing.value if thing.gives is None else thing.gives
    found = thing.read(kept)
    assert found == wanted
    assert type(found) is type(wanted)
    if thing.refused:
        assert thing.other(kept) != kept
        _refused(functools.partial(thing.read, thing.other(kept)), thing.refused)


@pytest.mark.parametrize("name", folders.FOLDERS)
def test_a_folder_is_read_as_before(name: str, tmp_path: Path) -> None:
    folder = folders.FOLDERS[name]
    for path, text in KEPT["folders"][name].items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(as_bytes(text))
    assert folder.read(tmp_path) == folder.value
    if folder.refused:
        path, before, after = folder.other
        text = (tmp_path / path).read_text()
        assert before in text
        (tmp_path / path).write_text(text.replace(before, after))
        _refused(lambda: folder.read(tmp_path), folder.refused)


@pytest.mark.parametrize("name", levels.STREAMS)
def test_a_stream_goes_on_from_the_state_of_before(name: str) -> None:
    found = levels.rest(levels.resumed(name, KEPT["levels"][name]["state"]))
    assert found == KEPT["levels"][name]["rest"]


def test_no_more_is_kept_than_there_is() -> None:
    there = {"things": [*THINGS], "folders": [*folders.FOLDERS], "levels": [*levels.STREAMS]}
    assert {each: [*kept] for each, kept in KEPT.items()} == there
