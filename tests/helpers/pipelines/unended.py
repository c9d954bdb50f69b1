"""Whether a pipeline without end goes on, for waits for what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apache_beam.runners.runner import PipelineState


def goes_on(result: Any) -> Callable[[], bool]:
    """Returns a part of `alive`: a pipeline that has ended is wrong."""

    def is_up() -> bool:
        state = result.state
        assert not PipelineState.is_terminal(state), f"the pipeline is {state}"
        return True

    return is_up
