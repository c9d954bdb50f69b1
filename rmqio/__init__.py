"""Apache RocketMQ for Apache Beam, in Python."""
