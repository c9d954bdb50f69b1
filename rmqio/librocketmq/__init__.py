"""Sending through librocketmq, RocketMQ's C++ client, for those who must use the vendor's: `backend="librocketmq"`.

The library comes with the module `rocketmq`, of one of two distributions: `rocketmq` 0.4.4, which brings it (Linux,
x86_64), or `rocketmq-client-python` 2.0.0, which wants one from elsewhere. What the library cannot do is refused.
Routes are looked up, and queues read, by the remoting client.
"""

from rmqio.librocketmq.factory import LibrocketmqClientFactory

__all__ = ["LibrocketmqClientFactory"]
