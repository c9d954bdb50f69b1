"""Avro: our serializers beside bare fastavro."""
