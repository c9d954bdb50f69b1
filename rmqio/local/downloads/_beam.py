"""The only file of `rmqio.local` that imports Beam. The default Maven repository is the one from which Beam itself
fetches its jars, so rmqio follows Beam (and its patches) and hard-codes no host.
"""

from __future__ import annotations


def default_maven_repository() -> str:
    """Return the address of Beam's repository. Importing Beam takes a second: call this only to download."""
    from apache_beam.utils.subprocess_server import JavaJarServer

    return str(JavaJarServer.MAVEN_CENTRAL_REPOSITORY)
