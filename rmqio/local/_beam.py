"""The one file of `rmqio.local` that touches Beam: the default Maven repository is the one that Beam itself fetches
its jars from, so that we follow Beam (and whoever patches it) and name no host of our own.
"""

from __future__ import annotations


def default_maven_repository() -> str:
    """The address of the repository that Beam uses. Imports Beam, which takes a second: call it only to download."""
    from apache_beam.utils.subprocess_server import JavaJarServer

    return str(JavaJarServer.MAVEN_CENTRAL_REPOSITORY)
