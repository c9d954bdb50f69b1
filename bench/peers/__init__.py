"""The connectors that users come from, beside rmqio: one broker, the same topic, the same check of what came out."""
