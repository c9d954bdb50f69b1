"""Notes the jobs that tests run: `pytest -p tests.helpers.same.recording`, into the file that `SAME_CORPUS` names.

Only here is it known how a job is run in this tree.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import apache_beam as beam
import pytest

from rmqio.sql.planning.plan import Sink
from rmqio.sql.runtime.translation import Translation
from rmqio.sql.scripts.script import Script
from rmqio.testing import InMemoryClientFactory
from rmqio.testing.cluster import find_cluster
from tests.helpers.same.corpus import FOLDER, Job, contents, save

_OF_A_TEST: Final = 3
"""Jobs: a property test has hundreds that are alike."""
_MAX_FILE: Final = 1 << 20


class Recording:
    """A plugin of pytest."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._texts: dict[int, list[str]] = {}
        self._scripts: dict[int, tuple[Sink, Script]] = {}
        self._added: dict[int, tuple[Translation, list[Sink]]] = {}
        self.jobs: dict[str, Job] = {}
        self._counts: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        folder: Path = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        with self.noting(item.nodeid, folder):
            return (yield)

    @contextmanager
    def noting(self, test: str, folder: Path) -> Iterator[None]:
        """Notes the jobs that the block runs. Their files are in the folder."""
        self._test, self._folder = test, folder
        with (
            mock.patch.object(Script, "run", self._noting_text(Script.run)),
            mock.patch.object(Translation, "add", self._noting_sink(Translation.add)),
            mock.patch.object(beam.Pipeline, "run", self._noting_job(beam.Pipeline.run)),
        ):
            yield

    def pytest_sessionfinish(self) -> None:
        save([*self.jobs.values()], self._file)

    def _noting_text(self, run: Callable[..., None]) -> Callable[..., None]:
        def noted(script: Script, text: str, file: str = "") -> None:
            run(script, text, file)
            self._texts.setdefault(id(script), []).append(text)
            self._scripts |= {id(sink): (sink, script) for sink in script.sinks}

        return noted

    def _noting_sink(self, add: Callable[..., None]) -> Callable[..., None]:
        def noted(translation: Translation, sink: Sink) -> None:
            add(translation, sink)
            self._added.setdefault(id(translation.pipeline), (translation, []))[1].append(sink)

        return noted

    def _noting_job(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def noted(pipeline: beam.Pipeline, *arguments: Any, **named: Any) -> Any:
            if (added := self._added.pop(id(pipeline), None)) is not None:
                self._note(*added)
            return run(pipeline, *arguments, **named)

        return noted

    def _note(self, translation: Translation, sinks: list[Sink]) -> None:
        factory = translation.connection.client_factory
        scripts = [self._scripts[id(sink)][1] for sink in sinks if id(sink) in self._scripts]
        if not scripts or (factory is not None and not isinstance(factory, InMemoryClientFactory)):
            return
        text = "\n".join(self._texts[id(scripts[0])])
        files: dict[str, str] = {}
        for folder in {match[0] for match in re.finditer(rf"{re.escape(str(self._folder))}/[^/'\s]+", text)}:
            for path in Path(folder).rglob("*"):
                if path.is_file() and path.stat().st_size < _MAX_FILE:
                    files[path.relative_to(self._folder).as_posix()] = path.read_bytes().decode("latin-1")
        text = text.replace(str(self._folder), FOLDER)
        queues, messages = contents(find_cluster(factory.name)) if factory is not None else ([], [])
        what = repr((text, queues, [(each.topic, each.body) for each in messages], files))
        same = hashlib.sha256(what.encode()).hexdigest()
        if same in self.jobs or self._counts[self._test] >= _OF_A_TEST:
            return
        self._counts[self._test] += 1
        name = re.sub(r"[^\w.-]+", "-", self._test.removeprefix("tests/unit/sql/").replace(".py::test_", "-"))
        self.jobs[same] = Job(f"{name[:120]}-{len(self.jobs) + 1}", text, queues, messages, files)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recording(Path(os.environ["SAME_CORPUS"])))
