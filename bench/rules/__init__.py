"""The engine of rules beside rsigma and the rules of RocketMQ Streams: `python -m bench.rules`."""
