"""The options of a program that matches rules."""

from __future__ import annotations

import argparse
from typing import Any

from rmqio.command_line.arguments import parse_interval, parse_topic
from rmqio.errors import LocalError
from rmqio.rules.ruleset import RuleSet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command line; `from_arguments` reads them."""
    add = parser.add_argument
    add("--rules", action="append", metavar="FILES", help="files of rules, such as 'rules/*.yml'; can be repeated")
    add(
        "--rules_topic",
        type=parse_topic,
        metavar="TOPIC",
        help="topic with the rules: the key is the name of a file, the body its text",
    )
    add("--format", choices=("sigma", "where", "json"), help="of the rules. Default: by the suffix of each file")
    add("--mapping", metavar="FILE", help="names of fields and log sources, see docs/rules/sigma.md")
    add(
        "--refresh_s",
        type=parse_interval,
        default=30.0,
        metavar="SECONDS",
        help="how old the rules may be, in seconds. Default: 30",
    )
    add(
        "--on_bad_rule",
        choices=("keep_previous", "skip", "fail"),
        default="keep_previous",
        help="if some rules cannot be used: skip and list them, also at the start; fail; or keep_previous rules. "
        "Default: keep_previous",
    )
    add(
        "--match",
        choices=("all", "first", "best"),
        default="all",
        help="which matching rules of an event to report. Default: all",
    )


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raises `LocalError` for options that name no rules, or files that cannot be read. It does not parse them.

    `arguments` have a `name_server`, too.
    """
    rules = from_arguments(arguments, name_server=arguments.name_server)
    if arguments.rules and rules.source is not None:
        rules.source.texts()


def from_arguments(arguments: argparse.Namespace, **cluster: Any) -> RuleSet:
    """The rules that the options describe. Raises `LocalError`.

    `cluster`: of a topic of rules, as `RuleSet.from_topic` takes it.
    """
    if bool(arguments.rules) == bool(arguments.rules_topic):
        raise LocalError("give either --rules or --rules_topic")
    how = {"format": arguments.format, "mapping": arguments.mapping}
    if arguments.rules:
        return RuleSet.from_files(*arguments.rules, **how)
    return RuleSet.from_topic(arguments.rules_topic, **how, **cluster)
