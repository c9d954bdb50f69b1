"""Apache Kafka, by the Python client of librdkafka: no JVM and no expansion service."""
