"""The only file of `rmqio.local` that imports Beam. The default Maven repository is the one from which Beam itself
fetches its jars, so rmqio follows Beam (and its patches) and hard-codes no host.
"""

from __future__ import annotations

from rmqio.local.errors import LocalBrokerError


def default_maven_repository() -> str:
    """Return the address of Beam's repository. Importing Beam takes a second: call this only to download.

    Raises LocalBrokerError if the installed Beam does not have it where all tested versions do.
    """
    try:
        from apache_beam.utils.subprocess_server import JavaJarServer

        return str(JavaJarServer.MAVEN_CENTRAL_REPOSITORY)
    except (ImportError, AttributeError) as error:
        raise LocalBrokerError(
            f"the installed Beam does not say from which Maven repository it fetches its jars ({error}). Set "
            "RMQIO_MAVEN_REPOSITORY to the address of one"
        ) from error
