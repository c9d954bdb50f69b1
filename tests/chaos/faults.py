"""Faults on the servers of a cluster, drawn from a seed."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.helpers.client.proxy import Proxy, Side
from tests.helpers.client.proxy import faults as network
from tests.helpers.servers.cluster import Cluster, Server

LONGEST_S: Final = 8.0
"""The longest time of a fault. A broker that starts again takes some seconds more; clients are patient for a minute."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and is repaired a while later.

    `target` is what it happens to: two faults of one target do not go together. `strike` returns False when there was
    nothing to strike. `rank`: what is repaired first, since a broker that starts waits for a name server.
    """

    kind: str
    target: str
    strike: Callable[[], object]
    repair: Callable[[], object] | None = None
    rank: int = 1
    is_lonely: bool = False
    """Whether nothing else may go wrong meanwhile."""

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"

    @property
    def sort(self) -> str:
        """The name under which faults are counted together: whichever broker it was."""
        return f"{self.kind} {self.target.rpartition(' ')[0]}"


@dataclass(frozen=True)
class Blow:
    """One fault, or two at once, after a pause."""

    pause_s: float
    faults: tuple[Fault, ...]
    lasts_s: float


def server_faults(cluster: Cluster) -> list[Fault]:
    """All that can happen to the servers."""
    brokers = [(f"broker {key}", server, 1) for key, server in cluster.brokers.items()]
    name_servers = [(f"name server {number}", server, 0) for number, server in enumerate(cluster.name_servers)]
    found = []
    for target, server, rank in (*brokers, *name_servers):
        found.append(Fault("kill", target, server.kill, server.restart, rank))
        found.append(Fault("pause", target, server.pause, server.resume, rank))
    found += [Fault("stop", target, server.stop, server.restart, rank) for target, server, rank in brokers]
    return found


_EVERY: Final = 1 << 30


def network_faults(proxies: Mapping[str, Proxy]) -> list[Fault]:
    """All that can happen on the way to servers, by their names."""

    def cut(proxy: Proxy) -> None:
        """The server does what it is asked, and nobody hears of it; there is no way to ask anew."""
        proxy.refuse(_EVERY)
        proxy.on(network.cut(reset=True), Side.ANSWER, times=_EVERY)

    def stall(proxy: Proxy) -> None:
        """Nothing arrives until it is repaired, and then all of it, however late."""
        for side in Side:
            proxy.on(network.stall(), side, times=_EVERY)

    def slow(proxy: Proxy) -> None:
        for side in Side:
            proxy.on(network.delay(20), side, times=_EVERY)

    def drop(proxy: Proxy) -> None:
        """Connections, again and again."""
        proxy.on(network.cut(), Side.ANSWER, skip=20, times=5)

    strikes = {"cut": cut, "stall": stall, "slow down": slow, "drop connections of": drop}
    return [
        Fault(kind, f"network of {name}", functools.partial(strike, proxy), proxy.heal)
        for name, proxy in proxies.items()
        for kind, strike in strikes.items()
    ]


def blows(rng: random.Random, faults: Sequence[Fault]) -> Iterator[Blow]:
    """Without end; the same for the same seed. One in four is a double one."""
    while True:
        first = rng.choice(faults)
        both: tuple[Fault, ...] = (first,)
        others = [fault for fault in faults if fault.target != first.target and not fault.is_lonely]
        if rng.random() < 0.25 and not first.is_lonely:
            both = (first, rng.choice(others))
        yield Blow(rng.uniform(0.5, 4.0), both, rng.uniform(0.5, LONGEST_S))


def heal(servers: Sequence[Server]) -> None:
    """Whatever has happened to them: they run, and serve."""
    for server in servers:
        if server.is_running:
            server.resume()
        else:
            server.process.start()
    for server in servers:
        server.wait_until_up()
