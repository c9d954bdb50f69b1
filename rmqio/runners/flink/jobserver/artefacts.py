"""The job server to run: a jar of the user's, the artefacts of our lock, or the one that Beam publishes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqio.local.artefacts import Lock, read_lock
from rmqio.local.downloads.maven import REPOSITORY_VARIABLE
from rmqio.local.errors import LocalBrokerError, WrongContentError
from rmqio.local.fetch import CACHE_VARIABLE, fetch
from rmqio.runners.flink.errors import JobServerError

JAR_VARIABLE: Final = "RMQIO_FLINK_JOB_SERVER_JAR"
LOCK: Final = Path(__file__).with_name("beam-2.62.0-flink-1.19.lock.json")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Jars:
    """The class path of a job server."""

    paths: tuple[Path, ...]
    origin: str
    """Their origin, for messages."""


def _published() -> Path:
    from rmqio.runners.flink.beam import published_job_server  # Beam takes seconds to import

    return published_job_server()


def find_jars(
    jar: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    fetch: Callable[[Lock], list[Path]] = fetch,
    published: Callable[[], Path] = _published,
) -> Jars:
    """Return the first available job server: `jar`, the environment's, our lock's artefacts, Beam's published one.

    A named jar that does not exist is an error, not a reason to look further: the user meant that one. A repository
    that sends other files than the lock names is an error too, since what Beam publishes is not verified.
    Raises JobServerError, which says why each of the ways failed.
    """
    environ = os.environ if environ is None else environ
    for given, origin in ((jar, "jar="), (environ.get(JAR_VARIABLE), JAR_VARIABLE)):
        if given:
            path = Path(given).absolute()
            if not path.is_file():
                raise JobServerError(
                    f"{origin} names {path}, which is not a file: correct it, or omit it to have one fetched"
                )
            return Jars((path,), f"{path}, from {origin}")
    lock = read_lock(LOCK)
    try:
        return Jars(tuple(fetch(lock)), f"the artefacts of the lock {lock.name}")
    except WrongContentError as error:
        raise JobServerError(str(error)) from error
    except LocalBrokerError as error:
        locked = error
    _log.warning("The artefacts of the lock %s are not available: trying the job server that Beam publishes", lock.name)
    try:
        return Jars((published(),), "the job server that Beam publishes")
    except (OSError, RuntimeError, ValueError) as error:
        raise JobServerError(_none(lock, locked, error)) from error


def _none(lock: Lock, locked: Exception, beams: Exception) -> str:
    return (
        "no Flink job server is available. There are three ways to get one:\n"
        f"1. a jar of your own, in the argument jar= or the variable {JAR_VARIABLE}: none is given\n"
        f"2. the {len(lock.artefacts)} artefacts ({lock.size / 1e6:.0f} MB) of the lock {lock.name}, from Maven's own "
        f"cache, ours ({CACHE_VARIABLE}), your mirror ({REPOSITORY_VARIABLE} or Maven's settings.xml) or the default "
        f"repository: {locked}\n"
        f"3. the job server that Beam publishes, downloaded as Beam's own FlinkRunner does: {beams}"
    )
