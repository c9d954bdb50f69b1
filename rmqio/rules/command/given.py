"""The set of rules that a command line names."""

from __future__ import annotations

import argparse

from rmqio.errors import LocalError
from rmqio.rules.errors import Problem, RuleError
from rmqio.rules.formats import Parsed
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


def parsed(rules: RuleSet) -> Parsed:
    """Returns the rules with all problems, also if the source cannot be read."""
    try:
        return rules.parsed()
    except RuleError as error:
        return Parsed(problems=error.problems)


def text_of(problem: Problem) -> str:
    """Returns a problem with the line that shows it."""
    shown = getattr(problem, "shown", "")
    return f"{problem}\n{shown}" if shown else str(problem)
