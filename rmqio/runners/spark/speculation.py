"""Refuses speculative tasks with exactly-once writes: Spark runs a slow task twice at once, and both send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rmqio.runners.report import Refused

_NAME: Final = "spark.speculation"


def refuse_in_options(writes: Sequence[str], settings: Mapping[str, str]) -> None:
    """Raises `Refused` if the settings of `--spark_conf` speculate and there are exactly-once writes (their names)."""
    if writes and _speculates(settings):
        raise _refused(writes[0], f"--spark_conf {_NAME}={settings[_NAME]}", "Leave it out")


def refuse_in_session(writes: Sequence[str], settings: Mapping[str, str]) -> None:
    """The same for the settings that Spark was started with, wherever they come from."""
    if writes and _speculates(settings):
        remedy = f"Give --spark_conf {_NAME}=false, or set that where Spark is started if it is running already"
        raise _refused(writes[0], f"Spark's setting {_NAME}={settings[_NAME]}", remedy)


def _speculates(settings: Mapping[str, str]) -> bool:
    return settings.get(_NAME, "").strip().lower() == "true"


def _refused(write: str, setting: str, remedy: str) -> Refused:
    return Refused(
        f"{write} is an exactly-once write, and {setting} makes Spark run a second copy of a slow task: neither copy "
        f"sees what the other sends, so messages would be stored twice. {remedy}"
    )
