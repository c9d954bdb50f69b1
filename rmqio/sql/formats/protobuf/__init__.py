"""Protobuf bodies: messages of a descriptor, alone (`protobuf`) or behind a schema's id (`protobuf-confluent`)."""
