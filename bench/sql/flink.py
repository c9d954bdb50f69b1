"""Flink's own SQL in a JVM that is warm: an oracle for tests, and a peer for benchmarks."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from bench.common.jvm import JAVA, Jdk
from bench.common.process import LineProcess
from bench.common.tally import BenchError
from rmqio.local.artefacts import read_lock
from rmqio.local.errors import LocalBrokerError
from rmqio.local.fetch import fetch

LOCK: Final = JAVA / "flink-sql-2.3.0.lock.json"
"""Written by `python -m rmqio.local.lock --name flink-sql-2.3.0` with the roots that it names: 154 MB."""
_OPENED: Final = ("java.lang", "java.lang.reflect", "java.math", "java.net", "java.nio", "java.time", "java.util")


class Rows(NamedTuple):
    """The result of a query.

    Attributes:
      types: of its columns, as Flink writes them.
      rows: integers and booleans as such, all else as the text that Java makes of it.
    """

    types: list[str]
    rows: list[tuple[Any, ...]]


class Column(NamedTuple):
    """The values of an expression.

    Attributes:
      type: as Flink writes it.
      values: for each row, as `FlinkSql.columns` takes them; `Failed` for a row for which the expression fails.
    """

    type: str
    values: list[Any]


class Failed(NamedTuple):
    """What Flink refused, or failed for."""

    reason: str


class FlinkFailed(BenchError):
    """Flink refused a statement, or a job of it failed."""


class FlinkSql:
    """One process. Raises `BenchError` if the jars cannot be had."""

    def __init__(
        self, jdk: Jdk, folder: Path, *, parallelism: int = 1, heap: str = "768m", options: Sequence[str] = ()
    ) -> None:
        self._file = folder / "statements.sql"
        try:
            class_path = os.pathsep.join(map(str, fetch(read_lock(LOCK))))
        except LocalBrokerError as error:
            raise BenchError(str(error)) from error
        command = [str(jdk.java), f"-Xmx{heap}", "-XX:+UseSerialGC", f"-Dparallelism={parallelism}", "-cp", class_path]
        command[1:1] = options
        command += [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED]
        command += [f"-Djava.io.tmpdir={folder}", "-Dfile.encoding=UTF-8", str(JAVA / "FlinkSql.java")]
        self._process = LineProcess("Flink's SQL", command, folder / "flink.log", cwd=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.close()

    def rows(self, statements: Sequence[str]) -> Rows:
        """Runs statements and returns the rows of the last one, a query. Raises `FlinkFailed`."""
        answer = self._ask("run", statements)
        return Rows(answer["types"], [tuple(each) for each in answer["rows"]])

    def columns(
        self, statements: Sequence[str], rows: Sequence[Sequence[Any]], expressions: Sequence[str]
    ) -> list[Column | Failed]:
        """Evaluates expressions over rows of the table `t`, which one of the statements creates, without a job.

        Times are microseconds, days or months; bytes hexadecimal; decimals text; maps lists of pairs; floats, in the
        result, text.
        """
        answer = self._ask("values", [*statements, json.dumps(rows), *expressions])
        return [
            Failed(each["failed"])
            if "failed" in each
            else Column(each["type"], [Failed(v["failed"]) if isinstance(v, dict) else v for v in each["values"]])
            for each in answer["columns"]
        ]

    def refusals(self, statements: Sequence[str], queries: Sequence[str]) -> list[str | None]:
        """Returns why each query is refused after these statements; None: it can be planned."""
        return list(self._ask("plan", [*statements, *queries])["refused"])

    def seconds(self, statements: Sequence[str]) -> float:
        """Runs all INSERTs among the statements as one job, and returns its wall seconds. Raises `FlinkFailed`."""
        return float(self._ask("seconds", statements)["seconds"])

    def _ask(self, how: str, statements: Sequence[str]) -> dict[str, Any]:
        self._file.write_text("\n----\n".join(statements), encoding="utf-8")
        answer = self._process.ask(f"{how} {self._file}")
        if "failed" in answer:
            raise FlinkFailed(answer["failed"])
        return answer
