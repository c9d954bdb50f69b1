"""Settings of a script as options of its runner."""

from __future__ import annotations

from collections.abc import Sequence

from rmqio.sql.errors import SqlError
from rmqio.sql.scripts.settings import INTERVAL, MODE, NAME, PARALLELISM, Settings

_FLAGS = {
    "flink": {NAME: "job_name", PARALLELISM: "parallelism", INTERVAL: "checkpointing_interval"},
    "spark": {NAME: "spark_app_name"},
    "spark --streaming": {NAME: "spark_app_name", INTERVAL: "trigger_interval_ms"},
}


def options_of(settings: Settings, runner: str, given: Sequence[str], endless: Sequence[str]) -> list[str]:
    """Returns flags for the runner. A flag of the command line comes before a setting; other runners take no notice.

    Args:
      settings: what SET has set.
      runner: its name, as on the command line.
      given: the other flags of the command line.
      endless: names of the tables whose reads do not end.

    Raises `SqlError` for a job in batch mode that would not end.
    """
    name = runner.lower().removesuffix("runner")
    names = {each.partition("=")[0].removeprefix("--") for each in given}
    is_streaming = "streaming" in names
    flags = []
    if settings.mode == "batch":
        if is_streaming:
            raise SqlError(f"{MODE} is batch, and --streaming says the opposite")
        if endless:
            raise SqlError(f"{MODE} is batch, and the read of {endless[0]} does not end: give --stop, or its endTime")
    if settings.mode == "streaming" and name in ("spark", "flink") and not is_streaming:
        flags.append("--streaming")
        is_streaming = True
    known = _FLAGS.get("spark --streaming" if name == "spark" and is_streaming else name, {})
    values = {NAME: settings.name, PARALLELISM: settings.parallelism, INTERVAL: settings.interval_ms}
    flags += [f"--{flag}={values[key]}" for key, flag in known.items() if values[key] and flag not in names]
    return flags
