"""SET: what statements after it obey, and what the job does.

Keys are Flink's. Each is one that has its meaning here, one that changes nothing here because it is always so, or one
that is refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rmqio.sql import values
from rmqio.sql.errors import Refusal, SqlError, listed, nearest
from rmqio.sql.syntax.statements import Option
from rmqio.sql.values import ValueFailure

# EMIT, and the settings that mean the same: when the rows of windows are given besides at their ends.

_EARLY: Final = "table.exec.emit.early-fire."
_LATE: Final = "table.exec.emit.late-fire."
LATENESS: Final = "table.exec.emit.allow-lateness"
SETTINGS: Final = (*(f"{phase}{what}" for phase in (_EARLY, _LATE) for what in ("enabled", "delay")), LATENESS)


@dataclass(frozen=True, slots=True)
class EmitSettings:
    """Settings of SET. Delays are in milliseconds; None: it was not said.

    Attributes:
      early_enabled, late_enabled: whether windows give rows before and after the watermark.
      early_ms, late_ms: with which delay after the first new row.
      lateness_ms: how long after the watermark rows still count.
    """

    early_enabled: bool = False
    early_ms: int | None = None
    late_enabled: bool = False
    late_ms: int | None = None
    lateness_ms: int = 0

    def with_option(self, option: Option, duration_ms: int | None) -> EmitSettings:
        """Returns the settings after a SET. `duration_ms`: its value as a duration, but for switches."""
        key = option.key.lower()
        if key == LATENESS:
            return replace(self, lateness_ms=duration_ms or 0)
        is_early = key.startswith(_EARLY)
        if key.endswith("delay"):
            return replace(self, early_ms=duration_ms) if is_early else replace(self, late_ms=duration_ms)
        if option.value.lower() not in ("true", "false"):
            raise Refusal(f"{option.value!r} is neither 'true' nor 'false'", option.value_span)
        is_on = option.value.lower() == "true"
        return replace(self, early_enabled=is_on) if is_early else replace(self, late_enabled=is_on)

    def without(self, key: str) -> EmitSettings:
        """Returns the settings after a RESET of one of them."""
        if key == LATENESS:
            return replace(self, lateness_ms=0)
        is_early = key.startswith(_EARLY)
        if key.endswith("delay"):
            return replace(self, early_ms=None) if is_early else replace(self, late_ms=None)
        return replace(self, early_enabled=False) if is_early else replace(self, late_enabled=False)


def is_switch(key: str) -> bool:
    """Returns whether the value of a setting is 'true' or 'false'."""
    return key.endswith("enabled")


_UNITS_MS: Final = {
    "ms": 1, "millisecond": 1, "milliseconds": 1, "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "min": 60_000, "m": 60_000, "minute": 60_000, "minutes": 60_000, "h": 3_600_000, "hour": 3_600_000,
    "hours": 3_600_000, "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
TTL: Final = "table.exec.state.ttl"
NAME: Final = "pipeline.name"
ZONE: Final = "table.local-time-zone"
PARALLELISM: Final = "parallelism.default"
MODE: Final = "execution.runtime-mode"
INTERVAL: Final = "execution.checkpointing.interval"
IDLE: Final = "table.exec.source.idle-timeout"

_FIELDS: Final = {
    TTL: "ttl_ms", NAME: "name", ZONE: "zone", PARALLELISM: "parallelism", MODE: "mode", INTERVAL: "interval_ms",
    IDLE: "idle_ms", "table.exec.resource.default-parallelism": "parallelism",
}  # fmt: skip
_ALWAYS: Final = {
    "table.exec.mini-batch.enabled": "true", "table.exec.mini-batch.allow-latency": "",
    "table.exec.mini-batch.size": "",
    "table.optimizer.agg-phase-strategy": "two_phase auto", "table.optimizer.reuse-source-enabled": "true",
    "table.optimizer.reuse-sub-plan-enabled": "true", "table.optimizer.source.predicate-pushdown-enabled": "true",
    "table.dml-sync": "true", "execution.checkpointing.mode": "exactly_once",
    "sql-client.execution.result-mode": "",
}  # fmt: skip
"""Settings that are always so, and the values for which this is true; empty: any."""
_REFUSED: Final = {
    "execution.savepoint.path": "a job continues with --checkpoint_dir, or on Flink with --savepoint_path",
    "execution.checkpointing.dir": "it is the option --checkpoint_dir of the command",
    "state.checkpoints.dir": "it is the option --checkpoint_dir of the command",
    "state.savepoints.dir": "it is the option --checkpoint_dir of the command",
    "state.backend": "on Flink it is the option --state_backend of the command",
    "state.backend.type": "on Flink it is the option --state_backend of the command",
    "restart-strategy": "the runner decides it: on Flink by --flink_conf",
    "restart-strategy.type": "the runner decides it: on Flink by --flink_conf",
    "table.sql-dialect": "there is one dialect",
    "table.exec.sink.not-null-enforcer": "a NULL is a bad row, as on-error of the table that was read has it",
    "table.exec.sink.upsert-materialize": "rows of one key are in one queue, in order",
    "table.exec.async-lookup.buffer-capacity": "nothing is looked up asynchronously",
    "table.optimizer.distinct-agg.split.enabled": "DISTINCT is always aggregated in two phases",
    "table.plan.compile.catalog-objects": "plans are not compiled into files",
    "execution.target": "it is the option --runner of the command",
    "pipeline.jars": "functions are Python: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON",
    "pipeline.object-reuse": "it is Java's",
}  # fmt: skip


def option_of(key: object, value: object) -> Option:
    """Returns a setting of YAML or Python as SET has it: as text. Raises `Refusal` for what is no single value."""
    if not isinstance(value, (str, bool, int, float)):
        kind = "empty" if value is None else f"a {type(value).__name__}"
        raise Refusal(f"{key} is {kind}; it must be text, as in '1 h'", None)
    return Option(str(key), str(value).lower() if isinstance(value, bool) else str(value))


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a script.

    Attributes:
      ttl_ms: how long what nothing else bounds keeps its state, such as a join its rows; 0: it was not said.
      emit: when windows give rows besides at their ends.
      name: the job's name.
      zone: the session's time zone.
      parallelism: of the job on Flink; 0: it was not said.
      mode: streaming, batch or automatic.
      interval_ms: between checkpoints of Flink, and between micro-batches of Spark; 0: it was not said.
      idle_ms: when a queue without messages holds the watermark back no longer; 0: it was not said.
    """

    ttl_ms: int = 0
    name: str = ""
    zone: str = values.UTC
    parallelism: int = 0
    mode: str = "automatic"
    interval_ms: int = 0
    idle_ms: int = 0
    emit: EmitSettings = field(default_factory=EmitSettings)

    def with_option(self, option: Option) -> Settings:
        """Returns the settings after a SET. Raises `Refusal` for what is unknown or not valid."""
        key = option.key.lower()
        if key in _FIELDS:
            return replace(self, **{_FIELDS[key]: _value(key, option)})
        if key in SETTINGS:
            value = None if is_switch(key) else _duration_ms(option)
            return replace(self, emit=self.emit.with_option(option, value))
        if key in _ALWAYS:
            _check_always(key, option)
            return self
        if key in _REFUSED:
            raise Refusal(f"the setting {key!r} is not supported: {_REFUSED[key]}", option.span)
        known = (*_FIELDS, *SETTINGS, *_ALWAYS)
        raise Refusal(f"there is no setting {option.key!r}{nearest(key, known)}", option.span)

    def without(self, key: str | None) -> Settings:
        """Returns the settings after a RESET."""
        if key is None:
            return Settings()
        folded = key.lower()
        if folded in _FIELDS:
            name = _FIELDS[folded]
            fresh: Any = getattr(Settings(), name)
            return replace(self, **{name: fresh})
        if folded in SETTINGS:
            return replace(self, emit=self.emit.without(folded))
        if folded in _ALWAYS or folded in _REFUSED:
            return self
        raise Refusal(f"there is no setting {key!r}{nearest(folded, _FIELDS)}", None)


def _value(key: str, option: Option) -> Any:
    text = option.value.strip()
    match key:
        case "pipeline.name":
            return text
        case "table.local-time-zone":
            return _zone(text, option)
        case "execution.runtime-mode":
            return _one_of(text.lower(), ("streaming", "batch", "automatic"), option)
        case "table.exec.state.ttl":
            return _duration_ms(option)
    if key in (INTERVAL, IDLE):
        found = _duration_ms(option)
        if not found:
            what = "checkpoints are always taken" if key == INTERVAL else "a queue that is empty never waits forever"
            raise Refusal(f"{option.key} must be more than 0: {what}", option.value_span)
        return found
    if not re.fullmatch(r"[0-9]{1,5}", text) or not int(text):
        raise Refusal(f"{option.key} is {option.value!r}; it must be a whole number of at least 1", option.value_span)
    return int(text)


def _zone(text: str, option: Option) -> str:
    if text == "default":
        return values.UTC
    try:
        values.zone(text)
    except ValueFailure as error:
        import zoneinfo

        hint = nearest(text, zoneinfo.available_timezones())
        raise Refusal(f"{error}{hint}", option.value_span) from None
    return values.UTC if text in ("Z", "Etc/UTC", "GMT") else text


def _one_of(text: str, known: tuple[str, ...], option: Option) -> str:
    if text not in known:
        raise Refusal(
            f"{option.key} is {option.value!r}{nearest(text, known) or f'; it can be {listed(known)}'}",
            option.value_span,
        )
    return text


def _check_always(key: str, option: Option) -> None:
    known = _ALWAYS[key].split()
    if key.endswith("allow-latency"):
        _duration_ms(option)
    if known and option.value.strip().lower() not in known:
        raise Refusal(f"{option.key} is always {known[0]}: it cannot be {option.value!r}", option.value_span)


def _duration_ms(option: Option) -> int:
    found = re.fullmatch(r"\s*([0-9]{1,12})\s*([a-z]*)\s*", option.value.lower())
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise Refusal(f"{option.value!r} is not a time; it must be like '1 h'", option.value_span)
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


# Settings of a script as options of its runner.

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
