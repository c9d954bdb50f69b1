"""A TCP proxy on loopback that breaks what goes through it, at exact places: the n-th request or answer of a code.

It knows where frames begin and end, by code of its own: what it tests is rmqio's.
"""

from tests.helpers.client.proxy import faults
from tests.helpers.client.proxy.frames import Frame, Side
from tests.helpers.client.proxy.server import Proxy

__all__ = ["Frame", "Proxy", "Side", "faults"]
