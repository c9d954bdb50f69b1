"""Failures on the Direct runner: the user's error, once, with the user's frames."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest

from rmqio import runners
from rmqio.runners.tracebacks import StateNotEncodable
from tests.helpers.spark.wrong_state import CASES, require_named


def ratio(number: int) -> float:
    return 1 / number


def price(name: str) -> int:
    try:
        return {"tea": 3}[name]
    except KeyError as error:
        raise ValueError(f"no price for {name}") from error


def run(function: Callable[[Any], Any], *elements: Any) -> None:
    with beam.Pipeline(options=runners.options([])) as pipeline:
        _ = pipeline | beam.Create(elements) | "Step" >> beam.Map(function) | beam.Map(lambda each: each)


def files_of(error: BaseException) -> list[str]:
    """The file of each frame, after that of the run; the tests' own watch on runners is left out."""
    names = [frame.filename.rpartition("/")[2] for frame in traceback.extract_tb(error.__traceback__)]
    return [name for name in names[names.index("tracebacks.py") + 1 :] if name != "sitecustomize.py"]


def test_an_error_has_its_type_its_step_and_the_frames_of_user_code(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError, match=r"division by zero \[while running 'Step'\]$") as raised:
        run(ratio, 1, 0)
    assert files_of(raised.value) == ["test_failures.py"]
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("division by zero") == 1
    assert "in ratio" in shown
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_cause_stays() -> None:
    with pytest.raises(ValueError, match="no price for coffee") as raised:
        run(price, "tea", "coffee")
    assert isinstance(raised.value.__cause__, KeyError)
    assert files_of(raised.value) == ["test_failures.py"]
    assert "direct cause" in "".join(traceback.format_exception(raised.value))


def test_all_is_shown_to_who_wants_to_see_what_beam_does(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="apache_beam.runners.common"), pytest.raises(ZeroDivisionError) as raised:
        run(ratio, 0)
    assert len(traceback.extract_tb(raised.value.__traceback__)) > 20
    assert [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(("fn", "state", "value"), CASES)
def test_a_value_that_does_not_fit_its_state_is_named(fn: type[beam.DoFn], state: str, value: str) -> None:
    with pytest.raises(StateNotEncodable) as raised, beam.Pipeline(options=runners.options([])) as pipeline:
        _ = pipeline | beam.Create([("a", 1)]) | "Keep" >> beam.ParDo(fn())
    require_named(str(raised.value), state, value)
    assert str(raised.value).endswith(" [while running 'Keep']")
    assert files_of(raised.value) == []


def test_an_interrupt_in_a_step_is_an_interrupt() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        run(interrupt, 1)
    assert len(traceback.extract_tb(raised.value.__traceback__)) < 12
