"""SET: what statements after it obey, and what the job does.

Keys are Flink's. Each is one that has its meaning here, one that changes nothing here because it is always so, or one
that is refused with the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rmqio.sql import values
from rmqio.sql.errors import Refusal, listed, nearest
from rmqio.sql.scripts import emitting
from rmqio.sql.scripts.emitting import EmitSettings
from rmqio.sql.syntax.statements import Option
from rmqio.sql.values import ValueFailure

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
        if key in emitting.SETTINGS:
            value = None if emitting.is_switch(key) else _duration_ms(option)
            return replace(self, emit=self.emit.with_option(option, value))
        if key in _ALWAYS:
            _check_always(key, option)
            return self
        if key in _REFUSED:
            raise Refusal(f"the setting {key!r} is not supported: {_REFUSED[key]}", option.span)
        known = (*_FIELDS, *emitting.SETTINGS, *_ALWAYS)
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
        if folded in emitting.SETTINGS:
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
