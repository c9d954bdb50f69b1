"""The brokers on which a topic is changed or deleted, their state of it, and the question before something is lost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqio.command_line.contents import for_all
from rmqio.command_line.errors import CommandFailed
from rmqio.command_line.output import shortened
from rmqio.errors import LocalError, TransportError
from rmqio.model import BrokerData
from rmqio.near_names import did_you_mean

if TYPE_CHECKING:
    from rmqio.client.admin import Admin, TopicConfig


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add the options that all changes of topics take."""
    parser.add_argument("--cluster", metavar="NAME", help="needed if the name servers know several clusters")
    parser.add_argument("--dry_run", action="store_true", help="only show what would be done")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def masters(admin: Admin, cluster: str | None, named: Sequence[str] = ()) -> list[BrokerData]:
    """Return the masters of a cluster, or those that are named.

    Raises `CommandFailed` for a name that is not there, and for several clusters of which none is named.
    """
    there = admin.masters()
    clusters = sorted({broker.cluster for broker in there})
    if cluster is None and len(clusters) > 1:
        raise CommandFailed(f"the name servers know several clusters, {', '.join(clusters)}: name one with --cluster")
    if cluster not in (None, *clusters):
        near = did_you_mean(str(cluster), clusters)
        raise CommandFailed(f"--cluster {cluster}: the name servers know {', '.join(clusters)}{near}")
    found = [broker for broker in there if cluster in (None, broker.cluster)]
    names = [broker.broker for broker in found]
    for name in named:
        if name not in names:
            raise CommandFailed(f"--broker {name}: the masters are {shortened(names)}{did_you_mean(name, names)}")
    return [broker for broker in found if not named or broker.broker in named]


def configs(
    admin: Admin, topic: str, brokers: Sequence[BrokerData], *, so_far: str = "nothing has been changed"
) -> dict[str, TopicConfig | None]:
    """Return the topic's configuration on each broker, by name; None for a broker that does not have it.

    Raises `CommandFailed` for a broker that does not answer, saying what has been done so far.
    """
    from rmqio.client.admin import config_on

    def ask(broker: BrokerData) -> TopicConfig | None:
        try:
            return config_on(admin, topic, broker)
        except TransportError as error:
            raise CommandFailed(f"broker {broker.broker} does not answer: {error}; {so_far}") from error

    return dict(zip([broker.broker for broker in brokers], for_all(ask, brokers), strict=True))


def confirmed(question: str, *, is_sure: bool) -> bool:
    """Ask on a terminal, unless the user is sure (--yes). Raises `LocalError` where nobody can answer."""
    if is_sure:
        return True
    if not sys.stdin.isatty():
        raise LocalError(f"{question} Standard input is not a terminal: add --yes to continue")
    sys.stdout.flush()
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
