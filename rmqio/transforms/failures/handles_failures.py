"""`HandlesFailures`: the outputs for elements that fail, which several transforms have."""

from __future__ import annotations

from typing import Any, Self

import apache_beam as beam

from rmqio.interfaces import ClientFactory
from rmqio.security import Security
from rmqio.transforms.failures.read_failures import ReadFailure
from rmqio.transforms.failures.write_dead_letters import WriteDeadLetters


class HandlesFailures(beam.PTransform):
    """A transform whose failures go to an error handler, to a dead-letter topic, or fail the pipeline.

    Args:
      dead_letter_topic: None: there is none, and the other arguments are not used.
      name_server, security, client_factory: as in `WriteToRocketMQ`.
    """

    def __init__(
        self,
        dead_letter_topic: str | None,
        name_server: str | tuple[str, ...] | list[str] | None,
        security: Security | None,
        client_factory: ClientFactory | None,
    ) -> None:
        super().__init__()
        self._dead_letter_topic = dead_letter_topic
        self._letters: WriteDeadLetters | None = None
        if dead_letter_topic is not None:
            self._letters = WriteDeadLetters(
                dead_letter_topic, name_server=name_server, security=security, client_factory=client_factory
            )
        self._error_handler: Any = None

    def with_error_handler(self, error_handler: Any) -> Self:
        """Send elements that fail to Beam's `ErrorHandler` as `ReadFailure`. None: take the handler back."""
        self._error_handler = error_handler
        return self

    @property
    def takes_failures(self) -> bool:
        """Whether failures go to an error handler or to dead letters."""
        return self._error_handler is not None or self._letters is not None

    def take_failures(self, failures: Any) -> None:
        """Give the output of failures its type, and send it to where they go."""
        # So that Beam finds its coder: only its newest versions know the types of a ParDo's tagged outputs.
        failures.element_type = ReadFailure
        if self._error_handler is not None:
            self._error_handler.add_error_pcollection(failures)
        if self._letters is not None:
            _ = failures | "Dead letters" >> self._letters
