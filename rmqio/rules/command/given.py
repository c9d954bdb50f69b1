"""The set of rules that a command line names."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator

from rmqio.command_line.terminal import safe
from rmqio.errors import LocalError
from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.ruleset import RuleSet


def ruleset_of(arguments: argparse.Namespace) -> RuleSet:
    """Returns the set. Raises `LocalError` for files and a topic at once, or neither."""
    if bool(arguments.files) == (arguments.rules_topic is not None):
        raise LocalError("name the files of the rules, as in 'rules/*.yml', or their topic by --rules_topic")
    if arguments.files:
        return RuleSet.from_files(*arguments.files, format=arguments.format, mapping=arguments.mapping)
    from rmqio.client.factory import RemotingClientFactory
    from rmqio.command_line.connect import attended_options

    factory = RemotingClientFactory(attended_options(arguments))
    return RuleSet.from_topic(
        arguments.rules_topic, client_factory=factory, format=arguments.format, mapping=arguments.mapping
    )


@contextlib.contextmanager
def each_on_its_line() -> Iterator[None]:
    """Prints several problems one below the other, each with the line that shows it; the error then counts them."""
    try:
        yield
    except RuleError as error:
        if len(error.problems) < 2:
            raise
        for each in error.problems:
            print(safe(text_of(each)), file=sys.stderr)
        raise LocalError(f"the rules cannot be used: they have {len(error.problems):,} problems") from error


def text_of(problem: Problem) -> str:
    """Returns a problem with the line that shows it."""
    shown = getattr(problem, "shown", "")
    return f"{problem}\n{shown}" if shown else str(problem)
