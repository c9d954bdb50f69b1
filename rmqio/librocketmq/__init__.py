"""Sending through librocketmq, RocketMQ's C++ client, where the vendor's client is required: `backend="librocketmq"`.

The library comes with the module `rocketmq`, from one of two distributions: `rocketmq` 0.4.4, which bundles it (Linux,
x86_64), or `rocketmq-client-python` 2.0.0, which needs a separate one. Features that the library lacks are refused.
The remoting client looks up routes and reads queues.
"""

from rmqio.librocketmq.factory import LibrocketmqClientFactory

__all__ = ["LibrocketmqClientFactory"]
