"""A TCP proxy on loopback that breaks what goes through it, at exact places: the n-th request or answer of a code.

It knows where frames begin and end, by code of its own: what it tests is rmqio's.
"""

from tests.helpers.proxy import faults
from tests.helpers.proxy.frames import Frame, Side
from tests.helpers.proxy.server import Proxy

__all__ = ["Frame", "Proxy", "Side", "faults"]
