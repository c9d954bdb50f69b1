"""SQL over RocketMQ topics, in any Beam pipeline."""
