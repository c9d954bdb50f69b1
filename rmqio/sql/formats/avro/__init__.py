"""Avro bodies, alone and behind the id of a schema in a registry."""
