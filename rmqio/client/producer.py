"""The former home of `rmqio.client.RemotingProducer`; it will be removed in the release after the next."""

from __future__ import annotations

import warnings

from rmqio.client.sending.producer import RemotingProducer

__all__ = ["RemotingProducer"]

warnings.warn("rmqio.client.producer is rmqio.client now", DeprecationWarning, stacklevel=2)
